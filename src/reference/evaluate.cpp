#include "reference/evaluate.h"

#include <algorithm>

#include "graph/uses.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

std::string node_label(const Node& node) { return fmt::format("node '{}' ({})", node.id, node.op); }

Expected<std::vector<Tensor>> evaluate_or_ask(const Node& node, int opset, std::span<const Tensor* const> inputs,
                                              const ForeignEvaluator& foreign) {
  if (has_reference(node, opset)) return evaluate_node(node, opset, inputs);
  if (foreign) return foreign(node, inputs);
  return make_error("{}: no reference for this operator", node_label(node));
}

// How many nodes still read each tensor; graph outputs are read once more at the end.
std::map<std::string, int> count_uses(const Graph& graph) {
  std::map<std::string, int> uses;
  for (const Node& node : graph.nodes)
    for (const std::string& name : slot_names(node)) ++uses[name];
  for (const ValueInfo& output : graph.outputs) ++uses[output.name];
  return uses;
}

Expected<TensorMap> walk(const Graph& graph, const TensorMap& inputs, const Visitor& visit, const Disturbance& disturb,
                         const ForeignEvaluator& foreign);

}  // namespace

bool has_reference(const Node& node, int opset) { return find_operator(node.domain, node.op) != nullptr; }

std::string unknown_operator_hint(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (!has_reference(node, graph.opset(node.domain)))
      return fmt::format("; {}: no meta-operator for {}", node_label(node), node.op);
  return "";
}

Expected<std::vector<Tensor>> evaluate_node(const Node& node, int opset, std::span<const Tensor* const> inputs) {
  const MetaOperator* op = find_operator(node.domain, node.op);
  if (!op) return make_error("{}: no reference for this operator", node_label(node));
  const Call call(node, opset, inputs);
  if (const auto types = infer_call(*op, call); !types) return with_context(node_label(node), types.error());
  return values(*op, call);
}

Expected<TensorMap> evaluate_graph(const Graph& graph, const TensorMap& inputs, const Visitor& visit,
                                   const ForeignEvaluator& foreign) {
  return walk(graph, inputs, visit, {}, foreign);
}

Expected<TensorMap> evaluate_perturbed(const Graph& graph, const TensorMap& inputs, const Disturbance& disturb,
                                       const ForeignEvaluator& foreign) {
  return walk(graph, inputs, {}, disturb, foreign);
}

namespace {

Expected<TensorMap> walk(const Graph& graph, const TensorMap& inputs, const Visitor& visit, const Disturbance& disturb,
                         const ForeignEvaluator& foreign) {
  TensorMap live = inputs;
  std::map<std::string, int> uses = count_uses(graph);
  const auto find = [&](const std::string& name) -> const Tensor* {
    if (const auto found = live.find(name); found != live.end()) return &found->second;
    if (const auto found = graph.initialisers.find(name); found != graph.initialisers.end()) return &found->second;
    return nullptr;
  };
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[index];
    NodeVisit step{static_cast<int>(index), &node, {}, {}};
    const std::vector<std::string> slots = slot_names(node);
    for (const std::string& name : slots) {
      step.inputs.push_back(name.empty() ? nullptr : find(name));
      if (!name.empty() && !step.inputs.back())
        return make_error("{}: input '{}' is not there", node_label(node), name);
    }
    OPDIFF_TRY(std::vector<Tensor> results, evaluate_or_ask(node, graph.opset(node.domain), step.inputs, foreign));
    if (results.size() < node.outputs.size())
      return make_error("{}: {} outputs named, the operator gives {}", node_label(node), node.outputs.size(),
                        results.size());
    if (disturb) disturb(static_cast<int>(index), results);
    if (visit) {
      for (const Tensor& tensor : results) step.outputs.push_back(&tensor);
      OPDIFF_RETURN_IF_ERROR(visit(step));
    }
    for (std::size_t k = 0; k < node.outputs.size(); ++k)
      if (!node.outputs[k].empty() && uses[node.outputs[k]] > 0) live[node.outputs[k]] = std::move(results[k]);
    for (const std::string& name : slots)
      if (--uses[name] == 0) live.erase(name);
  }
  TensorMap outputs;
  for (const ValueInfo& output : graph.outputs) {
    const Tensor* tensor = find(output.name);
    if (!tensor) return make_error("graph output '{}' is produced by no node", output.name);
    outputs[output.name] = *tensor;
  }
  return outputs;
}

}  // namespace

Expected<std::map<std::string, TensorType>> infer_types(const Graph& graph,
                                                        const std::map<std::string, TensorType>& inputs) {
  std::map<std::string, TensorType> types = inputs;
  std::map<std::string, Tensor> known = graph.initialisers;  // values known before the run
  for (const auto& [name, tensor] : graph.initialisers) types[name] = {tensor.dtype(), tensor.shape()};
  std::map<std::string, TensorType> declared;
  for (const ValueInfo& value : graph.values) {
    TensorType type{value.dtype, Shape()};
    for (const Dimension& d : value.shape.value_or(std::vector<Dimension>())) {
      if (!d.value) type.shape.reset();
      if (type.shape) type.shape->push_back(*d.value);
    }
    if (!value.shape) type.shape.reset();
    declared[value.name] = type;
  }
  for (const Node& node : graph.nodes) {
    const MetaOperator* op = find_operator(node.domain, node.op);
    std::vector<std::optional<TensorType>> input_types;
    std::vector<const Tensor*> tensors;
    bool typed = op != nullptr;
    for (const std::string& name : node.inputs) {
      const auto type = types.find(name);
      const auto value = known.find(name);
      input_types.push_back(type == types.end() ? std::nullopt : std::optional(type->second));
      tensors.push_back(value == known.end() ? nullptr : &value->second);
      if (!name.empty() && type == types.end()) typed = false;
    }
    if (!typed) {
      for (const std::string& name : node.outputs)
        if (const auto found = declared.find(name); found != declared.end()) types[name] = found->second;
      continue;
    }
    const Call call(node, graph.opset(node.domain), input_types, tensors);
    const auto results = infer_call(*op, call);
    if (!results) return with_context(node_label(node), results.error());
    for (std::size_t k = 0; k < node.outputs.size() && k < results->size(); ++k)
      if (!node.outputs[k].empty()) types[node.outputs[k]] = (*results)[k];
    // Small integer tensors computed from known ones (shapes, axes) are known too.
    bool all_known = true;  // absent inputs are
    for (std::size_t k = 0; k < tensors.size(); ++k) all_known = all_known && (tensors[k] || node.inputs[k].empty());
    const bool shape_only = node.op == "Shape" && call.has_shape(0);
    if (results->empty() || !(*results)[0].shape || element_count(*(*results)[0].shape) > 64) continue;
    if (all_known) {
      std::vector<Tensor> outputs = values(*op, call);
      for (std::size_t k = 0; k < node.outputs.size() && k < outputs.size(); ++k)
        known[node.outputs[k]] = std::move(outputs[k]);
    } else if (shape_only) {
      const Shape& shape = call.shape(0);
      const std::int64_t rank = call.rank(0);
      const auto clamp = [&](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank); };
      const std::int64_t start = clamp(call.integer("start", 0)), end = clamp(call.integer("end", rank));
      const Shape part(shape.begin() + start, shape.begin() + std::max(start, end));
      known[node.outputs[0]] = Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(part.size())}, part);
    }
  }
  return types;
}

}  // namespace opdiff
