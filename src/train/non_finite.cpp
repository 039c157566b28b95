#include "train/non_finite.h"

#include <algorithm>
#include <cmath>

namespace opdiff {
namespace {

// The first element that is not finite; -1: none.
std::int64_t first_bad(const Tensor& tensor) {
  if (!is_float(tensor.dtype())) return -1;
  if (tensor.dtype() == DType::f32) {
    const auto values = tensor.as<float>();
    const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    return bad == values.end() ? -1 : bad - values.begin();
  }
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    if (!std::isfinite(tensor.at(i))) return i;
  return -1;
}

struct Found {
  int node = -1;
  std::string tensor;
  std::int64_t element = -1;
  double value = 0;
};

void look(const Graph& graph, int index, const TensorMap& outputs, Found* found) {
  if (found->node >= 0) return;
  for (const std::string& name : graph.nodes[static_cast<std::size_t>(index)].outputs) {
    const auto output = outputs.find(name);
    if (output == outputs.end()) continue;
    const std::int64_t bad = first_bad(output->second);
    if (bad < 0) continue;
    *found = {index, name, bad, output->second.at(bad)};
    return;
  }
}

}  // namespace

bool all_finite(const Tensor& tensor) { return first_bad(tensor) < 0; }

std::string explain_non_finite(const Graph& graph, const TypeMap& types, const TensorMap& inputs,
                               const std::vector<int>& labels, std::vector<Party>& parties,
                               const std::string& noticed) {
  const std::string seen = fmt::format("'{}' is not finite", noticed);
  for (const auto& [name, tensor] : inputs)
    if (!all_finite(tensor)) return fmt::format("{}: its input '{}' was not finite already", seen, name);

  Found own, reference;
  std::vector<CutPart> parts;
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    if (graph.nodes[index].op == "Constant") continue;
    Party& party = parties[static_cast<std::size_t>(labels[index])];
    parts.push_back({{static_cast<int>(index)}, [&party](const Graph& segment, const TensorMap& given) -> Outcome {
                       if (!party.open) return reference_runner({})(segment, given);
                       const auto backend = party.open();
                       if (!backend) return Outcome::failure(OutcomeKind::error, backend.error().message);
                       return run_once(**backend, segment, given);
                     }});
  }
  const Outcome outcome = run_cut(graph, inputs, parts, types, [&](const CutPart& part, const TensorMap& outputs) {
    look(graph, part.nodes[0], outputs, &own);
  });
  const auto walked = evaluate_graph(graph, inputs, [&](const NodeVisit& visit) -> Expected<void> {
    TensorMap outputs;
    for (std::size_t k = 0; k < visit.node->outputs.size(); ++k)
      if (!visit.node->outputs[k].empty()) outputs[visit.node->outputs[k]] = *visit.outputs[k];
    look(graph, visit.index, outputs, &reference);
    return {};
  });
  if (own.node < 0 && !outcome.ok())
    return fmt::format("{}; looking for the first operator failed: {}", seen, outcome.reason);
  if (own.node < 0)
    return fmt::format(
        "{}, but no operator makes such a value when the step is run node by node: compare the step "
        "with opdiff compare --mode step",
        seen);
  const Node& node = graph.nodes[static_cast<std::size_t>(own.node)];
  std::string text =
      fmt::format("{}: the first operator to make one is '{}' ({}) on {}: {}[{}] = {} from finite inputs", seen,
                  node.id, node.op, parties[static_cast<std::size_t>(labels[static_cast<std::size_t>(own.node)])].spec,
                  own.tensor, own.element, own.value);
  if (!walked || reference.node < 0)
    text += "; the reference stays finite on the same step";
  else if (reference.node == own.node)
    text += "; so does the reference: it is the training, not the backend (a learning rate too high?)";
  else
    text += fmt::format("; the reference makes its first at '{}'",
                        graph.nodes[static_cast<std::size_t>(reference.node)].id);
  return text;
}

}  // namespace opdiff
