#include "plan/chain.h"

#include <utility>

namespace opdiff {

ReferenceChain::ReferenceChain(const Graph& graph, const TensorMap& inputs, ForeignEvaluator foreign,
                               std::size_t budget)
    : graph_(graph), inputs_(inputs), foreign_(std::move(foreign)), budget_(budget) {
  for (const auto& [name, tensor] : inputs) types_[name] = type_of(tensor);
}

Expected<TensorMap> ReferenceChain::tensors(const std::set<std::string>& names) {
  TensorMap result;
  bool missing = types_.size() == inputs_.size();
  for (const std::string& name : names) {
    if (const auto input = inputs_.find(name); input != inputs_.end()) {
      result[name] = input->second;
    } else if (const auto initialiser = graph_.initialisers.find(name); initialiser != graph_.initialisers.end()) {
      result[name] = initialiser->second;
    } else if (const auto kept = kept_.find(name); kept != kept_.end()) {
      result[name] = kept->second;
    } else {
      missing = true;
    }
  }
  if (!missing) return result;
  kept_.clear();
  kept_bytes_ = 0;
  const auto visit = [&](const NodeVisit& visit) -> Expected<void> {
    for (std::size_t slot = 0; slot < visit.outputs.size() && slot < visit.node->outputs.size(); ++slot) {
      const std::string& name = visit.node->outputs[slot];
      if (name.empty() || visit.outputs[slot] == nullptr) continue;
      const Tensor& tensor = *visit.outputs[slot];
      types_[name] = type_of(tensor);
      const bool asked = names.count(name) > 0;
      if (asked) result[name] = tensor;
      if (!asked && kept_bytes_ + tensor.byte_size() > budget_) continue;
      kept_[name] = tensor;
      kept_bytes_ += tensor.byte_size();
    }
    return {};
  };
  OPDIFF_TRY([[maybe_unused]] const TensorMap outputs, evaluate_graph(graph_, inputs_, visit, foreign_));
  for (const std::string& name : names) {
    if (result.count(name) == 0) return make_error("no node of the graph makes the tensor '{}'", name);
  }
  return result;
}

}  // namespace opdiff
