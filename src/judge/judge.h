// The ladder: which arithmetic could have produced this tensor, given these exact inputs? Pure functions; no I/O, no
// framework. Specification: docs/numerics.md.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "judge/verdict.h"

namespace opdiff {

// Judges what backends returned for one node on the exact inputs `inputs` (nullptr: absent optional input). Yardsticks
// are evaluated when first needed and kept, so judging a second backend's result costs little. Not thread-safe.
class NodeJudge {
 public:
  NodeJudge(const Node& node, int opset, std::span<const Tensor* const> inputs);
  ~NodeJudge();
  NodeJudge(const NodeJudge&) = delete;
  NodeJudge& operator=(const NodeJudge&) = delete;

  // `got` has one tensor an output of the node, nullptr where the output is absent (its verdict is then empty and
  // exact). Without a meta-operator, or where it refuses the node: unproven verdicts with a note. A wrong dtype or
  // shape is a defect.
  std::vector<Verdict> judge(std::span<const Tensor* const> got);

  // What evaluate_node makes of the inputs, where that is known already; else it is worked out when first needed.
  void give_right_outputs(std::vector<Tensor> outputs);
  // Verdicts need not have classic figures: a pass over each tensor less.
  void leave_out_figures();
  // What is likely to be found is a named order of summation, as in a like call before: it is looked for as soon as the
  // definition does not explain a result. Where it explains it, a wider formula could do so, too.
  void expect_order();

 private:
  class State;
  std::unique_ptr<State> state_;
};

// One result of one node.
std::vector<Verdict> judge_node(const Node& node, int opset, std::span<const Tensor* const> inputs,
                                std::span<const Tensor* const> got);

// Compares with a measured noise floor (section 6): error / s per element, root mean square and largest.
struct FloorComparison {
  // Root mean square of error / s. Of few elements (seven or less) it exceeds 3 by chance: on a scale on which 3 is
  // what honest normal errors reach with odds of 1e-9 (6.1 of one element).
  double rms = 0;
  double max = 0;  // largest error / s
  bool suspect = false;
  bool non_finite_differs = false;
  ClassicFigures figures;
};
// `floor` has s per element (same count as the tensors), already floored at the tensor's median.
FloorComparison compare_with_floor(const Tensor& got, const Tensor& reference, std::span<const double> floor);

}  // namespace opdiff
