// The ladder: which arithmetic could have produced this tensor, given these exact inputs? Pure functions; no I/O, no
// framework. Specification: docs/numerics.md.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "judge/verdict.h"

namespace opdiff {

// Judges what a backend returned for one node on the exact inputs `inputs` (nullptr: absent optional input). `got` has one
// tensor an output of the node, nullptr where the output is absent. Without a meta-operator: unproven verdicts.
// A wrong dtype or shape is a defect with a note.
std::vector<Verdict> judge_node(const Node& node, int opset, std::span<const Tensor* const> inputs,
                                std::span<const Tensor* const> got);

// Compares with a measured noise floor (section 6): error / s per element, root mean square and largest.
struct FloorComparison {
  double rms = 0;   // root mean square of error / s
  double max = 0;   // largest error / s
  bool suspect = false;
  bool non_finite_differs = false;
  ClassicFigures figures;
};
// `floor` has s per element (same count as the tensors), already floored at the tensor's median.
FloorComparison compare_with_floor(const Tensor& got, const Tensor& reference, std::span<const double> floor);

}  // namespace opdiff
