// Random rounding errors in every node of a graph, of the size that honest arithmetic makes (docs/numerics.md, section
// 6): measured once, then drawn as often as wanted. The noise floor (reference/evaluate.h) and perturbed trainings
// (train/free_run.h) are made of it.
#pragma once

#include <vector>

#include "base/rng.h"
#include "reference/evaluate.h"

namespace opdiff {

class NodeNoise {
 public:
  // One reference evaluation; `outputs` receives the graph's.
  static Expected<NodeNoise> measure(const Graph& graph, const TensorMap& inputs, TensorMap* outputs,
                                     const ForeignEvaluator& foreign = {});
  // One evaluation of the same graph, on these or other inputs of the same shapes, with errors drawn anew.
  Expected<TensorMap> evaluate(const Graph& graph, const TensorMap& inputs, Rng& rng,
                               const ForeignEvaluator& foreign = {}) const;

 private:
  // Deviation of each element of each output of each node; empty where nothing is rounded.
  std::vector<std::vector<std::vector<float>>> planes_;
};

}  // namespace opdiff
