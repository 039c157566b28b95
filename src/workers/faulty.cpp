#include "workers/faulty.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include "workers/graph_edit.h"
#include "workers/worker_backend.h"

namespace opdiff {
namespace {

struct Fault;
using Edit = Expected<void> (*)(GraphEdit&, Graph&, std::size_t position, const Fault&);

enum class Place { graph, result, process };

struct Kind {
  const char* name;
  Place place;
  Edit edit;  // of Place::graph
  const char* what;
};

struct Fault {
  const Kind* kind = nullptr;
  std::string op, node, pair_from, pair_to;
  std::string attribute, value;
  std::optional<double> size, relative;
  std::optional<std::int64_t> index, axis, count, input;
  DType to = DType::bf16;
};

std::string first_output(const Node& node) {
  for (const auto& name : node.outputs) {
    if (!name.empty()) return name;
  }
  return "";
}

Change change_of(const Fault& fault) {
  if (fault.relative) return {.factor = 1 + *fault.relative};
  return {.offset = fault.size.value_or(1)};
}

Expected<void> change(GraphEdit& edit, Graph& graph, std::size_t position, const Change& change) {
  return edit.change_output(position, first_output(graph.nodes[position]), change);
}

Expected<void> scale(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return change(edit, graph, position, {.factor = 1 + std::exp2(-fault.size.value_or(10))});
}
Expected<void> offset(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return change(edit, graph, position, {.offset = fault.size.value_or(1)});
}
Expected<void> negate(GraphEdit& edit, Graph& graph, std::size_t position, const Fault&) {
  return change(edit, graph, position, {.factor = -1});
}
Expected<void> element(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return edit.change_output(position, first_output(graph.nodes[position]), change_of(fault),
                            {{}, fault.index.value_or(0), 1});
}
Expected<void> not_a_number(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return edit.change_output(position, first_output(graph.nodes[position]),
                            {.offset = std::numeric_limits<double>::quiet_NaN()}, {{}, fault.index.value_or(0), 1});
}
Expected<void> row(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return edit.change_output(position, first_output(graph.nodes[position]), change_of(fault),
                            {fault.axis.value_or(0), fault.index.value_or(0), fault.count.value_or(1)});
}
Expected<void> tail(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const std::int64_t count = fault.count.value_or(1);
  return edit.change_output(position, first_output(graph.nodes[position]), change_of(fault),
                            {fault.axis.value_or(-1), -count, count});
}

std::int64_t integer_attribute(const Node& node, const char* name) {
  const auto found = node.attributes.find(name);
  const auto* value = found == node.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value ? *value : 0;
}

Expected<std::size_t> weight_of(const Node& node, const Fault& fault) {
  const auto input = static_cast<std::size_t>(fault.input.value_or(1));
  if (input >= node.inputs.size() || node.inputs[input].empty()) return make_error("it has no input {}", input);
  return input;
}

// The axis of a weight that is summed over.
Expected<void> drop_channel(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  OPDIFF_TRY(const std::size_t input, weight_of(node, fault));
  std::int64_t axis = 0;
  if (node.op == "Conv") axis = 1;
  if (node.op == "Gemm") axis = integer_attribute(node, "transB") ? 1 : 0;
  if (node.op == "MatMul") axis = -2;
  return edit.change_input(position, input, {.factor = 0}, {fault.axis.value_or(axis), fault.index.value_or(0), 1});
}

Expected<void> drop_term(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  OPDIFF_TRY(const std::size_t input, weight_of(node, fault));
  const auto found = graph.initialisers.find(node.inputs[input]);
  if (found == graph.initialisers.end() || found->second.size() == 0) {
    return edit.change_input(position, input, {.factor = 0}, {{}, fault.index.value_or(0), 1});
  }
  const Tensor weight = found->second;
  std::int64_t index = fault.index.value_or(0);
  if (!fault.index) {
    for (std::int64_t i = 1; i < weight.size(); ++i) {
      if (std::abs(weight.at(i)) > std::abs(weight.at(index))) index = i;
    }
  }
  if (index < 0) index += weight.size();
  if (index < 0 || index >= weight.size())
    return make_error("index={}: '{}' has {} elements", *fault.index, node.inputs[input], weight.size());
  auto values = weight.to_doubles();
  values[static_cast<std::size_t>(index)] = 0;
  edit.replace_initialiser(position, input, Tensor::from_doubles(weight.dtype(), weight.shape(), values));
  return {};
}

Expected<void> round_operand(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (fault.input ? static_cast<std::size_t>(*fault.input) != i
                    : node.inputs[i].empty() || !is_float(edit.dtype_of(node.inputs[i])))
      continue;
    return edit.round_input(position, i, fault.to);
  }
  return make_error("it has no floating-point operand");
}

Expected<void> transpose(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  OPDIFF_TRY(const std::size_t input, weight_of(node, fault));
  const auto found = graph.initialisers.find(node.inputs[input]);
  if (found == graph.initialisers.end()) return make_error("its input {} is no initialiser", input);
  const Tensor& weight = found->second;
  const auto rank = weight.shape().size();
  if (rank < 2 || weight.shape()[rank - 1] != weight.shape()[rank - 2]) {
    return make_error("the last two dimensions of '{}', of shape {}, are not equal", node.inputs[input],
                      to_string(weight.shape()));
  }
  const auto n = static_cast<std::size_t>(weight.shape()[rank - 1]);
  const auto values = weight.to_doubles();
  auto swapped = values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / n % n, column = i % n;
    swapped[i - row * n - column + column * n + row] = values[i];
  }
  edit.replace_initialiser(position, input, Tensor::from_doubles(weight.dtype(), weight.shape(), swapped));
  return {};
}

template <class T>
std::optional<T> number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// "2" int, "0.5" float, "1;1;" ints, "SAME_LOWER" string, unless the attribute that is there says otherwise.
Expected<void> attribute(GraphEdit&, Graph& graph, std::size_t position, const Fault& fault) {
  auto& attributes = graph.nodes[position].attributes;
  if (fault.attribute.empty()) return make_error("attribute=NAME is missing");
  if (fault.value == "none") {
    attributes.erase(fault.attribute);
    return {};
  }
  const auto found = attributes.find(fault.attribute);
  const bool list = fault.value.find(';') != std::string::npos ||
                    (found != attributes.end() && std::holds_alternative<std::vector<std::int64_t>>(found->second));
  if (list) {
    std::vector<std::int64_t> values;
    for (std::size_t start = 0; start < fault.value.size();) {
      const auto end = std::min(fault.value.find(';', start), fault.value.size());
      const auto item = number<std::int64_t>(fault.value.substr(start, end - start));
      if (!item) return make_error("value={} is no list of integers such as 0;0;1;1", fault.value);
      values.push_back(*item);
      start = end + 1;
    }
    attributes[fault.attribute] = values;
    return {};
  }
  const bool is_float_now = found != attributes.end() && std::holds_alternative<float>(found->second);
  if (const auto value = number<std::int64_t>(fault.value); value && !is_float_now) {
    attributes[fault.attribute] = *value;
  } else if (const auto real = number<double>(fault.value)) {
    attributes[fault.attribute] = static_cast<float>(*real);
  } else {
    attributes[fault.attribute] = fault.value;
  }
  return {};
}

constexpr Kind kKinds[] = {
    {"scale", Place::graph, scale, "output times 1 + 2^-size (default size 10)"},
    {"offset", Place::graph, offset, "output plus size (default 1)"},
    {"negate", Place::graph, negate, "output times -1"},
    {"element", Place::graph, element,
     "one element, flat `index` (default 0; negative from the end), plus size, or times 1 + relative"},
    {"nan", Place::graph, not_a_number, "one element, flat `index`, is NaN"},
    {"row", Place::graph, row,
     "`count` slices from `index` on along `axis` (default 0) plus size, or times 1 + relative"},
    {"tail", Place::graph, tail,
     "the last `count` (default 1) along `axis` (default the last) plus size, or times 1 + relative"},
    {"drop-channel", Place::graph, drop_channel,
     "slice `index` of the weight (`input`, default 1) along its summed axis is zero"},
    {"drop-term", Place::graph, drop_term, "one weight (`index`; default the largest) is zero"},
    {"transpose", Place::graph, transpose, "the weight's last two dimensions, which must be equal, are swapped"},
    {"round-operand", Place::graph, round_operand,
     "first floating operand (or `input`) rounded to `to` (bfloat16, float16) and back"},
    {"attribute", Place::graph, attribute,
     "`attribute` is `value`: attribute=pads,value=0;0;0;0 (none: it is removed)"},
    {"stale", Place::result, nullptr, "outputs that the node reaches are those of the run before (first: zeros)"},
    {"wrong-shape", Place::result, nullptr, "outputs that the node reaches have a further dimension of 1"},
    {"wrong-dtype", Place::result, nullptr, "outputs that the node reaches are double (of double: float)"},
    {"crash", Place::process, nullptr, "the worker gets a segmentation fault in a run with the node"},
    {"hang", Place::process, nullptr, "the worker stops in a run with the node"},
};

// Tensors that depend on the outputs of `seeds`.
std::set<std::string> reached(const Graph& graph, const std::vector<std::size_t>& seeds) {
  std::set<std::string> tensors;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto& node = graph.nodes[i];
    const bool seed = std::find(seeds.begin(), seeds.end(), i) != seeds.end();
    if (seed ||
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](const auto& name) { return tensors.contains(name); })) {
      tensors.insert(node.outputs.begin(), node.outputs.end());
    }
  }
  tensors.erase("");
  return tensors;
}

std::vector<std::size_t> positions(const Graph& graph, const std::function<bool(const Node&)>& wanted) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (wanted(graph.nodes[i])) result.push_back(i);
  }
  return result;
}

// Nodes of the graph at which the fault appears.
std::vector<std::size_t> matches(const Graph& graph, const Fault& fault) {
  std::string node = fault.node;
  if (!fault.pair_to.empty()) {
    const auto first = positions(graph, [&](const Node& item) { return item.id == fault.pair_from; });
    const auto second = positions(graph, [&](const Node& item) { return item.id == fault.pair_to; });
    if (first.empty() || second.empty()) return {};
    const auto tensors = reached(graph, first);
    const auto& inputs = graph.nodes[second[0]].inputs;
    if (std::none_of(inputs.begin(), inputs.end(), [&](const auto& name) { return tensors.contains(name); })) return {};
    if (node.empty() && fault.op.empty()) node = fault.pair_to;
  }
  return positions(graph, [&](const Node& item) {
    return (node.empty() || item.id == node) && (fault.op.empty() || item.op == fault.op);
  });
}

Tensor with_wrong_dtype(const Tensor& tensor) {
  return Tensor::from_doubles(tensor.dtype() == DType::f64 ? DType::f32 : DType::f64, tensor.shape(),
                              tensor.to_doubles());
}

class FaultyBackend : public Backend {
 public:
  FaultyBackend(const BackendSpec& spec, Fault fault, std::unique_ptr<Backend> base)
      : fault_(std::move(fault)), base_(std::move(base)), info_(base_->info()) {
    info_.spec = to_string(spec);
    info_.name = "faulty";
    info_.build =
        fmt::format("{} {} with a planted fault; {}", base_->info().name, base_->info().version, base_->info().build);
  }

  const BackendInfo& info() const override { return info_; }

  Outcome prepare(const Graph& graph, const PrepareOptions& options, int* handle) override {
    const auto found = matches(graph, fault_);
    Graph edited = graph;
    if (fault_.kind->place == Place::graph) {
      std::vector<std::string> ids;
      for (const auto position : found) ids.push_back(graph.nodes[position].id);
      GraphEdit edit(edited);
      for (const auto& id : ids) {
        const auto done = fault_.kind->edit(edit, edited, edit.position_of(id), fault_);
        if (!done) {
          return Outcome::failure(OutcomeKind::error, fmt::format("faulty: fault '{}' does not fit node '{}': {}",
                                                                  fault_.kind->name, id, done.error().message));
        }
      }
    }
    Outcome outcome = base_->prepare(edited, options, handle);
    if (outcome.ok()) {
      auto& prepared = prepared_[*handle];
      prepared.present = !found.empty();
      prepared.touched = reached(graph, found);
    }
    return outcome;
  }

  Outcome run(int handle, const TensorMap& inputs, int repeat) override {
    auto& prepared = prepared_[handle];
    if (prepared.present && fault_.kind->place == Place::process) {
      const auto* worker = dynamic_cast<const WorkerBackend*>(base_.get());
      const bool hang = std::string_view(fault_.kind->name) == "hang";
      if (worker && worker->pid() > 0) ::kill(worker->pid(), hang ? SIGSTOP : SIGSEGV);
    }
    Outcome outcome = base_->run(handle, inputs, repeat);
    hide_added_nodes(outcome);
    if (outcome.ok() && fault_.kind->place == Place::result) spoil(prepared, outcome.outputs);
    return outcome;
  }

  void release(int handle) override {
    prepared_.erase(handle);
    base_->release(handle);
  }

 private:
  struct Prepared {
    bool present = false;
    std::set<std::string> touched;
    TensorMap previous;
  };

  void spoil(Prepared& prepared, TensorMap& outputs) {
    const std::string_view name = fault_.kind->name;
    const TensorMap right = outputs;
    for (auto& [output, tensor] : outputs) {
      if (!prepared.touched.contains(output)) continue;
      if (name == "stale") {
        const auto before = prepared.previous.find(output);
        tensor = before == prepared.previous.end() ? Tensor::zeros(tensor.dtype(), tensor.shape()) : before->second;
      } else if (name == "wrong-shape") {
        Shape shape = tensor.shape();
        shape.push_back(1);
        tensor = tensor.reshaped(shape);
      } else {
        tensor = with_wrong_dtype(tensor);
      }
    }
    prepared.previous = right;
  }

  // Times and failures of nodes that the edit added are the faulty node's.
  static void hide_added_nodes(Outcome& outcome) {
    const auto owner = [](const std::string& id) { return id.substr(0, id.rfind(kFaultMark)); };
    for (auto it = outcome.node_ms.begin(); it != outcome.node_ms.end();) {
      if (const std::string own = owner(it->first); own != it->first) {
        outcome.node_ms[own] += it->second;
        it = outcome.node_ms.erase(it);
      } else {
        ++it;
      }
    }
    auto failures = std::move(outcome.node_failures);
    outcome.node_failures.clear();
    for (auto& [id, failure] : failures) outcome.node_failures.emplace(owner(id), std::move(failure));
  }

  Fault fault_;
  std::unique_ptr<Backend> base_;
  BackendInfo info_;
  std::map<int, Prepared> prepared_;
};

std::string kind_names() {
  std::string names;
  for (const auto& kind : kKinds) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

template <class T>
Expected<void> read(const BackendSpec& spec, const char* key, std::optional<T>& into) {
  const auto found = spec.options.find(key);
  if (found == spec.options.end()) return {};
  into = number<T>(found->second);
  if (!into) return make_error("'{}': {}={} is no number", to_string(spec), key, found->second);
  return {};
}

Expected<Fault> parse_fault(const BackendSpec& spec) {
  static const std::set<std::string> known = {"base", "op",    "node",  "fault", "size",      "relative", "index",
                                              "axis", "count", "input", "to",    "attribute", "value",    "pair"};
  for (const auto& [key, value] : spec.options) {
    if (!known.contains(key))
      return make_error("'{}': unknown option '{}'; see: opdiff backend list faulty", to_string(spec), key);
  }
  Fault fault;
  const std::string name = spec.option("fault");
  for (const auto& kind : kKinds) {
    if (name == kind.name) fault.kind = &kind;
  }
  if (!fault.kind) return make_error("'{}': fault={} is none of {}", to_string(spec), name, kind_names());
  fault.op = spec.option("op");
  fault.node = spec.option("node");
  if (const std::string pair = spec.option("pair"); !pair.empty()) {
    const auto plus = pair.find('+');
    fault.pair_from = pair.substr(0, plus);
    if (plus != std::string::npos) fault.pair_to = pair.substr(plus + 1);
    if (fault.pair_from.empty() || fault.pair_to.empty())
      return make_error("'{}': pair={} is not of the form NODE+NODE", to_string(spec), pair);
  }
  if (fault.op.empty() && fault.node.empty() && fault.pair_to.empty()) {
    return make_error("'{}': say where, with op=OPERATOR, node=ID or pair=ID+ID", to_string(spec));
  }
  OPDIFF_RETURN_IF_ERROR(read(spec, "size", fault.size));
  OPDIFF_RETURN_IF_ERROR(read(spec, "relative", fault.relative));
  OPDIFF_RETURN_IF_ERROR(read(spec, "index", fault.index));
  OPDIFF_RETURN_IF_ERROR(read(spec, "axis", fault.axis));
  OPDIFF_RETURN_IF_ERROR(read(spec, "count", fault.count));
  OPDIFF_RETURN_IF_ERROR(read(spec, "input", fault.input));
  if (fault.count.value_or(1) < 1) return make_error("'{}': count must be at least 1", to_string(spec));
  const auto to = parse_dtype(spec.option("to", "bfloat16"));
  if (!to || !is_float(*to)) return make_error("'{}': to={} is no floating type", to_string(spec), spec.option("to"));
  fault.to = *to;
  fault.attribute = spec.option("attribute");
  fault.value = spec.option("value");
  return fault;
}

}  // namespace

std::string fault_table() {
  std::string table;
  for (const auto& kind : kKinds) table += fmt::format("  fault={:<14} {}\n", kind.name, kind.what);
  table +=
      "  where: op=OPERATOR (every node of it), node=ID, both, or pair=ID+ID: only in a graph that holds both nodes "
      "and a\n"
      "  path from the first to the second (the second is changed). A base with options of its own goes in "
      "parentheses:\n"
      "    faulty:base=(onnxruntime@1.23.2:opt=basic,disable=A+B),op=Conv,fault=scale,size=12\n";
  return table;
}

Expected<std::unique_ptr<Backend>> plant_fault(const BackendSpec& spec, std::unique_ptr<Backend> base) {
  OPDIFF_TRY(Fault fault, parse_fault(spec));
  if (fault.kind->place == Place::process && !dynamic_cast<WorkerBackend*>(base.get())) {
    return make_error("'{}': fault={} needs a base that is no faulty one", to_string(spec), fault.kind->name);
  }
  return std::make_unique<FaultyBackend>(spec, std::move(fault), std::move(base));
}

}  // namespace opdiff
