#include "program.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace opdiff::onednn {
namespace {

constexpr std::int64_t kOldestOpset = 7;  // before it, broadcasting was an attribute

std::string name_of(const sdk::Node& node) {
  return "node '" + node.id + "' (" + node.op + (node.domain == kGradientDomain ? " gradient" : "") + "): ";
}

// The exception being handled, as one that names the node.
[[noreturn]] void rethrow_for(const sdk::Node& node) {
  try {
    throw;
  } catch (const dnnl::error& problem) {
    if (problem.status == dnnl_out_of_memory) throw std::bad_alloc();
    if (problem.status == dnnl_unimplemented || problem.status == dnnl_invalid_arguments)
      throw sdk::Unsupported(name_of(node) + "oneDNN refuses it: " + problem.what());
    throw std::runtime_error(name_of(node) + "oneDNN: " + problem.what());
  } catch (const sdk::Unsupported& problem) {
    throw sdk::Unsupported(name_of(node) + problem.what());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& problem) {
    throw std::runtime_error(name_of(node) + problem.what());
  }
}

bool only_moves_data(const Step& step) {
  return step.host || step.primitive.get_kind() == dnnl::primitive::kind::reorder;
}

}  // namespace

Program::Program(sdk::Graph graph, bool fuse) : graph_(std::move(graph)), entries_(graph_.nodes.size()) {
  for (const auto& [domain, version] : graph_.opsets) {
    if (domain.empty()) graph_.opset = version;
  }
  if (graph_.opset < kOldestOpset) {
    throw sdk::Unsupported("opset " + std::to_string(graph_.opset) + " is below " + std::to_string(kOldestOpset));
  }
  for (const auto& input : graph_.inputs) {
    if (!input.shape_known || input.dtype.empty()) {
      late_.insert(input.name);
      continue;
    }
    Value value;
    value.dtype = input.dtype;
    value.shape = input.shape;
    value.memory = dnnl::memory(dense(input.dtype, input.shape), engine(), nullptr);
    values_[input.name] = std::move(value);
  }
  for (const auto& [name, tensor] : graph_.initialisers) {
    Value value;
    value.dtype = tensor.dtype;
    value.shape = tensor.shape;
    value.buffer = tensor.buffer;
    value.memory = dnnl::memory(dense(tensor.dtype, tensor.shape), engine(), tensor.buffer.data());
    value.known = true;
    values_[name] = std::move(value);
    late_.erase(name);
  }
  std::set<std::string> produced;
  for (const auto& input : graph_.inputs) produced.insert(input.name);
  for (const auto& [name, tensor] : graph_.initialisers) produced.insert(name);
  for (const auto& node : graph_.nodes) {
    for (const auto& name : node.outputs) {
      if (!name.empty() && !produced.insert(name).second)
        throw std::invalid_argument(name_of(node) + "its output '" + name + "' already has a producer");
    }
  }
  if (fuse && !graph_.isolated) {
    auto fusions = find_fusions(graph_);
    for (std::size_t i = 0; i < fusions.size(); ++i) entries_[i].planned = std::move(fusions[i]);
  }
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) prepare(i);
}

void Program::prepare(std::size_t index) {
  const sdk::Node& node = graph_.nodes[index];
  Entry& entry = entries_[index];
  if (entry.absorbed) return;
  const auto is_late = [this](const sdk::Node& reader) {
    return std::any_of(reader.inputs.begin(), reader.inputs.end(),
                       [this](const std::string& name) { return late_.count(name) != 0; });
  };
  entry.late = is_late(node);
  const auto& followers = entry.planned.followers;
  if (!entry.late &&
      std::any_of(followers.begin(), followers.end(), [&](const sdk::Node* next) { return is_late(*next); }))
    entry.planned = {};
  try {
    if (!entry.late) build(index, false);
  } catch (const NotYetKnown&) {
    entry.late = true;
  } catch (...) {
    if (!graph_.isolated) throw;
    entry.failure = sdk::current_failure();
    for (const auto& name : node.outputs) dead_[name] = node.id;
  }
  if (entry.late) {
    for (const auto& name : node.outputs) late_.insert(name);
  }
}

void Program::build(std::size_t index, bool everything_known) {
  Entry& entry = entries_[index];
  const auto absorb = [this](const Fusion& fusion, bool absorbed) {
    for (const sdk::Node* node : fusion.followers)
      entries_[static_cast<std::size_t>(node - graph_.nodes.data())].absorbed = absorbed;
  };
  absorb(entry.planned, false);
  entry.fusion = entry.planned;
  auto& followers = entry.fusion.followers;
  while (!followers.empty()) {
    try {
      build_now(index, everything_known);
      return absorb(entry.fusion, true);
    } catch (const sdk::Unsupported&) {
      followers.pop_back();  // oneDNN has no such fusion: as a separate primitive, then
    } catch (const NotYetKnown&) {
      followers.pop_back();
    }
  }
  build_now(index, everything_known);
}

void Program::build_now(std::size_t index, bool everything_known) {
  const sdk::Node& node = graph_.nodes[index];
  Entry& entry = entries_[index];
  try {
    for (const auto& name : node.inputs) {
      if (const auto found = dead_.find(name); found != dead_.end())
        throw std::runtime_error("its input '" + name + "' is missing because node '" + found->second + "' failed");
    }
    const bool gradient = node.domain == kGradientDomain;
    if (!node.domain.empty() && node.domain != "ai.onnx" && !gradient)
      throw sdk::Unsupported("operators of domain '" + node.domain + "' have no binding");
    const auto binding = binding_table().find((gradient ? "gradient/" : "") + node.op);
    if (binding == binding_table().end()) throw sdk::Unsupported("this operator has no binding to oneDNN");
    const auto opset = graph_.opsets.find(kGradientDomain);
    NodeBuilder builder(node, gradient && opset != graph_.opsets.end() ? opset->second : graph_.opset, values_,
                        everything_known, entry.fusion.followers.empty() ? nullptr : &entry.fusion);
    binding->second(builder);
    entry.kernel = builder.take();
    // Shapes are needed to build what comes after: integers computed from constants are folded.
    const bool fold = std::all_of(node.inputs.begin(), node.inputs.end(), [this](const std::string& name) {
      const auto value = values_.find(name);
      return name.empty() || (value != values_.end() && value->second.known);
    });
    for (const auto& name : node.outputs) {
      const auto made = values_.find(name);
      if (made == values_.end() || made->second.known || !fold) continue;
      if (made->second.dtype != "int64" && made->second.dtype != "int32") continue;
      entry.kernel.execute();
      made->second.known = true;
    }
  } catch (const NotYetKnown&) {
    throw;
  } catch (...) {
    rethrow_for(node);
  }
}

void Program::bind(const std::string& name, const sdk::Tensor& tensor) {
  if (graph_.initialisers.count(name)) return;
  Value& value = values_[name];
  void* data = const_cast<std::byte*>(tensor.data);  // sources are only read
  if (late_.count(name)) {
    value = {};
    value.dtype = tensor.dtype;
    value.shape = tensor.shape;
    value.memory = dnnl::memory(dense(tensor.dtype, tensor.shape), engine(), data);
    return;
  }
  value.memory.set_data_handle(data);
  for (auto& view : *value.views) view.set_data_handle(data);
}

sdk::RunResult Program::run(const sdk::TensorMap& inputs) {
  for (const auto& input : graph_.inputs) bind(input.name, inputs.at(input.name));
  sdk::RunResult result;
  std::map<std::string, std::string> dead_before = dead_;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const sdk::Node& node = graph_.nodes[i];
    Entry& entry = entries_[i];
    if (entry.absorbed) continue;
    if (!entry.failure.outcome.empty()) {
      result.failures[node.id] = entry.failure;
      continue;
    }
    try {
      if (entry.late) build(i, true);
      const auto start = std::chrono::steady_clock::now();
      try {
        entry.kernel.execute();
      } catch (...) {
        rethrow_for(node);
      }
      result.node_ms[node.id] =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    } catch (...) {
      if (!graph_.isolated) throw;
      result.failures[node.id] = sdk::current_failure();
      for (const auto& name : node.outputs) dead_[name] = node.id;
    }
  }
  for (const auto& output : graph_.outputs) {
    if (!dead_.count(output.name)) result.outputs[output.name] = take(output.name);
  }
  dead_ = std::move(dead_before);
  has_run_ = true;
  return result;
}

std::optional<std::vector<sdk::Kernel>> Program::kernels() {
  std::vector<sdk::Kernel> kernels;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.absorbed || !entry.failure.outcome.empty()) continue;
    if (entry.late && !has_run_) return std::nullopt;  // its first run builds it
    std::vector<std::string> nodes = {graph_.nodes[i].id};
    for (const sdk::Node* follower : entry.fusion.followers) nodes.push_back(follower->id);
    const auto& steps = entry.kernel.steps;
    const bool only_moves = std::all_of(steps.begin(), steps.end(), only_moves_data);
    for (const Step& step : steps) {
      const bool helps = only_moves_data(step) && !only_moves;  // a layout is met before, or after, what computes
      kernels.push_back({step.host ? "copy" : name_of(step.primitive), helps ? std::vector<std::string>() : nodes});
    }
  }
  return kernels;
}

sdk::Tensor Program::take(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end())
    throw std::invalid_argument("graph output '" + name + "' is produced by no node of the graph");
  const Value& value = found->second;
  const Desc layout = dense(value.dtype, value.shape);
  if (value.buffer.data() && value.memory.get_desc() == layout)
    return sdk::Tensor::owning(value.dtype, value.shape, value.buffer);
  sdk::Tensor tensor = sdk::Tensor::allocate(value.dtype, value.shape);
  if (tensor.bytes() == 0) return tensor;
  dnnl::memory from = value.memory;
  dnnl::memory to(layout, engine(), tensor.buffer.data());
  if (from.get_desc() == layout) {
    std::memcpy(tensor.buffer.data(), value.data(), tensor.bytes());
  } else {
    dnnl::reorder(from, to).execute(stream(), from, to);
    stream().wait();
  }
  return tensor;
}

}  // namespace opdiff::onednn
