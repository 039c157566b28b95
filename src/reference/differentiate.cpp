#include "reference/differentiate.h"

#include <algorithm>

#include "ops/gradient.h"

namespace opdiff {
namespace {

bool is_floating(const TypeMap& types, const std::string& name) {
  const auto type = types.find(name);
  return type != types.end() && is_float(type->second.dtype);
}

// Whether a gradient flows from output j of the node to its input k.
bool flows(const Node& node, const TypeMap& types, std::size_t k, std::size_t j) {
  if (node.inputs[k].empty() || node.outputs[j].empty()) return false;
  if (!is_floating(types, node.inputs[k]) || !is_floating(types, node.outputs[j])) return false;
  const MetaOperator* op = find_operator(node.domain, node.op);
  // Of an operator without a gradient the question comes up when its gradient is wanted.
  return !op || !op->gradient || is_differentiable(*op, static_cast<int>(k));
}

// The tensors that depend on those of `from`, themselves included.
std::set<std::string> dependent(const Graph& graph, const TypeMap& types, const std::vector<std::string>& from) {
  std::set<std::string> reached(from.begin(), from.end());
  for (const Node& node : graph.nodes)
    for (std::size_t k = 0; k < node.inputs.size(); ++k)
      for (std::size_t j = 0; j < node.outputs.size() && reached.contains(node.inputs[k]); ++j)
        if (flows(node, types, k, j)) reached.insert(node.outputs[j]);
  return reached;
}

// The tensors that those of `to` depend on, themselves included.
std::set<std::string> needed(const Graph& graph, const TypeMap& types, std::set<std::string> to) {
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node)
    for (std::size_t j = 0; j < node->outputs.size(); ++j)
      for (std::size_t k = 0; k < node->inputs.size() && to.contains(node->outputs[j]); ++k)
        if (flows(*node, types, k, j)) to.insert(node->inputs[k]);
  return to;
}

class Differentiation {
 public:
  Differentiation(const Graph& graph, const TypeMap& types) : types_(types) {
    result_.graph = graph;
    for (const ValueInfo& input : graph.inputs) taken_.insert(input.name);
    for (const auto& [name, tensor] : graph.initialisers) taken_.insert(name);
    for (const Node& node : graph.nodes) {
      taken_.insert(node.outputs.begin(), node.outputs.end());
      ids_.insert(node.id);
    }
  }

  Expected<TrainingGraph> run(const std::map<std::string, std::string>& cotangents,
                              const std::vector<std::string>& wrt) {
    const std::vector<Node> forward = result_.graph.nodes;
    std::set<std::string> seeds;
    for (const auto& [tensor, cotangent] : cotangents) {
      if (!is_floating(types_, tensor)) return make_error("'{}' is no floating tensor of the graph", tensor);
      add_cotangent(tensor, cotangent);
      seeds.insert(tensor);
    }
    const std::set<std::string> active = dependent(result_.graph, types_, wrt);
    const std::set<std::string> wanted = needed(result_.graph, types_, seeds);
    const auto matters = [&](const std::string& name) { return active.contains(name) && wanted.contains(name); };
    // How many contributions each tensor's gradient has, so that a single one gets its name.
    for (const Node& node : forward)
      for (std::size_t k = 0; k < node.inputs.size(); ++k)
        if (emits(node, k, matters)) ++expected_[node.inputs[k]];

    for (auto node = forward.rbegin(); node != forward.rend(); ++node) {
      std::vector<std::size_t> slots;
      for (std::size_t k = 0; k < node->inputs.size(); ++k)
        if (emits(*node, k, matters)) slots.push_back(k);
      if (!slots.empty()) OPDIFF_RETURN_IF_ERROR(add_gradient(*node, slots));
    }
    for (const std::string& name : wrt) {
      const auto gradient = gradient_of(name);
      if (!gradient) return make_error("nothing that is differentiated depends on '{}'", name);
      result_.training.gradients[name] = *gradient;
      const TensorType& type = types_.at(name);
      ValueInfo output{*gradient, type.dtype, std::vector<Dimension>()};
      if (!type.shape)
        output.shape.reset();
      else
        for (const std::int64_t extent : *type.shape) output.shape->push_back({extent, ""});
      result_.graph.outputs.push_back(std::move(output));
    }
    return std::move(result_);
  }

 private:
  template <class Matters>
  bool emits(const Node& node, std::size_t k, const Matters& matters) const {
    if (!matters(node.inputs[k])) return false;
    for (std::size_t j = 0; j < node.outputs.size(); ++j)
      if (matters(node.outputs[j]) && flows(node, types_, k, j)) return true;
    return false;
  }

  void add_cotangent(const std::string& tensor, const std::string& cotangent) {
    contributions_[tensor].push_back(cotangent);
    ++expected_[tensor];
    result_.training.cotangents[tensor] = cotangent;
    if (!taken_.insert(cotangent).second) return;  // somebody gives it already
    const TensorType& type = types_.at(tensor);
    ValueInfo input{cotangent, type.dtype, std::vector<Dimension>()};
    for (const std::int64_t extent : type.shape.value_or(Shape())) input.shape->push_back({extent, ""});
    result_.graph.inputs.push_back(std::move(input));
  }

  // The sum of the contributions to a tensor's gradient so far; all of them, once every user has been met.
  std::optional<std::string> gradient_of(const std::string& tensor) {
    std::vector<std::string>& parts = contributions_[tensor];
    if (parts.empty()) return std::nullopt;
    const std::vector<std::string> terms = parts;
    for (std::size_t i = 1; i < terms.size(); ++i) {
      Node add;
      add.op = "Add";
      const bool last = i + 1 == terms.size();
      add.id = unused(ids_, fmt::format("{}/gradient/sum{}", tensor, last && i == 1 ? "" : std::to_string(i)));
      add.inputs = {parts[0], terms[i]};
      add.outputs = {unused(taken_, last ? tensor + "/gradient" : fmt::format("{}/gradient/sum{}", tensor, i))};
      parts = {add.outputs[0]};
      result_.training.backward.insert(add.id);
      result_.graph.nodes.push_back(std::move(add));
    }
    return parts[0];
  }

  Expected<void> add_gradient(const Node& node, const std::vector<std::size_t>& slots) {
    const MetaOperator* op = find_operator(node.domain, node.op);
    if (!op || !op->gradient)
      return make_error("node '{}' ({}): there is no gradient of this operator", node.id, node.op);
    Node gradient;
    gradient.id = unused(ids_, node.id + "/gradient");
    gradient.op = node.op;
    gradient.domain = kGradientDomain;
    gradient.attributes = node.attributes;
    if (node.outputs.size() != 1) gradient.attributes[kCotangents] = static_cast<std::int64_t>(node.outputs.size());
    gradient.inputs = node.inputs;
    for (const std::string& output : node.outputs)
      gradient.inputs.push_back(output.empty() || !is_floating(types_, output) ? "" : gradient_of(output).value_or(""));
    gradient.outputs.resize(slots.back() + 1);
    for (const std::size_t k : slots) {
      const std::string& tensor = node.inputs[k];
      const bool only = expected_[tensor] == 1;
      gradient.outputs[k] = unused(
          taken_, only ? tensor + "/gradient" : fmt::format("{}/gradient/{}", tensor, contributions_[tensor].size()));
      contributions_[tensor].push_back(gradient.outputs[k]);
    }
    result_.graph.opsets[gradient.domain] = result_.graph.opset(node.domain.empty() ? "" : node.domain);
    result_.training.backward.insert(gradient.id);
    result_.graph.nodes.push_back(std::move(gradient));
    return {};
  }

  // `name`, or the first of NAME_2, NAME_3, ... that nobody has yet.
  static std::string unused(std::set<std::string>& taken, const std::string& name) {
    std::string candidate = name;
    for (int i = 2; !taken.insert(candidate).second; ++i) candidate = fmt::format("{}_{}", name, i);
    return candidate;
  }

  const TypeMap& types_;
  TrainingGraph result_;
  std::set<std::string> taken_, ids_;
  std::map<std::string, std::vector<std::string>> contributions_;
  std::map<std::string, int> expected_;
};

}  // namespace

Expected<TrainingGraph> differentiate(const Graph& graph, const TypeMap& types,
                                      const std::map<std::string, std::string>& cotangents,
                                      const std::vector<std::string>& wrt) {
  return Differentiation(graph, types).run(cotangents, wrt);
}

std::vector<std::string> differentiable_tensors(const Graph& graph, const TypeMap& types) {
  std::set<std::string> seeds;
  for (const ValueInfo& output : graph.outputs)
    if (is_floating(types, output.name)) seeds.insert(output.name);
  const std::set<std::string> wanted = needed(graph, types, seeds);
  std::set<std::string> sources;
  for (const ValueInfo& input : graph.inputs) sources.insert(input.name);
  for (const auto& [name, tensor] : graph.initialisers) sources.insert(name);
  std::vector<std::string> result;
  for (const Node& node : graph.nodes)
    for (const std::string& name : node.inputs)
      if (sources.contains(name) && wanted.contains(name) && is_floating(types, name) &&
          std::find(result.begin(), result.end(), name) == result.end())
        result.push_back(name);
  return result;
}

}  // namespace opdiff
