#include <algorithm>
#include <cmath>

#include "graph/segments.h"
#include "graph/uses.h"
#include "ops/evaluate.h"
#include "reference/evaluate.h"
#include "workers/fault.h"

namespace opdiff {
namespace {

std::vector<int> with_ancestors(const Graph& graph, std::size_t position) {
  const Uses uses(graph);
  std::set<int> nodes = {static_cast<int>(position)};
  std::vector<int> todo(nodes.begin(), nodes.end());
  while (!todo.empty()) {
    const int node = todo.back();
    todo.pop_back();
    for (const int producer : uses.predecessors(node)) {
      if (nodes.insert(producer).second) todo.push_back(producer);
    }
  }
  return {nodes.begin(), nodes.end()};
}

Expected<std::vector<double>> largest_deviation(const MetaOperator& op, const Call& call, const Tensor& right) {
  if (!op.kernels.f64 || !is_float(right.dtype())) return make_error("it does not round: it has no deviation");
  std::vector<double> largest(static_cast<std::size_t>(right.size()), 0);
  for (std::size_t formula = 0; formula < op.formulas.size(); ++formula) {
    const auto enclosed = enclose(op, call, inner_f32(right.dtype()), static_cast<int>(formula));
    for (std::size_t i = 0; i < largest.size(); ++i) {
      const double deviation = enclosed[0].deviation[i];
      if (std::isfinite(deviation)) largest[i] = std::max(largest[i], deviation);
    }
  }
  return largest;
}

}  // namespace

FedFault::FedFault(const Graph& graph, std::size_t position)
    : computation_(extract_subgraph(graph, with_ancestors(graph, position), {})) {}

Expected<Tensor> FedFault::tensor(const TensorMap& inputs, const Fault& fault) const {
  TensorMap own;
  for (const auto& input : computation_.inputs) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) return make_error("the input '{}' is missing", input.name);
    own[input.name] = found->second;
  }
  std::optional<Tensor> result;
  const auto visit = [&](const NodeVisit& visit) -> Expected<void> {
    if (static_cast<std::size_t>(visit.index) + 1 != computation_.nodes.size()) return {};
    const Tensor& right = *visit.outputs[0];
    const Call call(*visit.node, computation_.opset(visit.node->domain), visit.inputs);
    OPDIFF_TRY(auto added, largest_deviation(*find_operator(visit.node->domain, visit.node->op), call, right));
    const std::int64_t wanted = fault.index.value_or(0) < 0 ? *fault.index + right.size() : fault.index.value_or(0);
    if (fault.index && (wanted < 0 || wanted >= right.size()))
      return make_error("index={}: it gives {} elements", *fault.index, right.size());
    for (std::int64_t i = 0; i < right.size(); ++i) {
      added[static_cast<std::size_t>(i)] *= fault.index && i != wanted ? 0 : fault.size.value_or(4);
    }
    result = Tensor::from_doubles(right.dtype(), right.shape(), added);
    return {};
  };
  OPDIFF_TRY([[maybe_unused]] const TensorMap outputs, evaluate_graph(computation_, own, visit));
  if (!result) return make_error("the reference did not reach it");
  return *std::move(result);
}

}  // namespace opdiff
