// The whole model on a backend, its default optimisations on, nothing marked as an extra output: run, then read against
// the reference with the noise floor.
#pragma once

#include "plan/comparison.h"
#include "plan/cut.h"
#include "plan/options.h"
#include "plan/reading.h"

namespace opdiff {

// Two runs of one prepared model.
struct WholeRun {
  Outcome outcome;               // of the first run
  std::optional<Outcome> again;  // of the second, where it gave other bits or failed
};
WholeRun run_whole(Backend& backend, const Graph& graph, const TensorMap& inputs, const CompareOptions& options);

WholeModelResult read_whole(const WholeRun& run, const TensorMap& reference, const FloorSource& floor,
                            const CompareOptions& options);

// When the whole model is suspect: every node alone on the backend's own chained tensors. Sets total_error and
// inherited_error of the comparison's nodes (by index), and returns how far the chained outputs are from the reference.
Reading check_chained(const Graph& graph, const TensorMap& inputs, Backend& backend, const ForeignEvaluator& foreign,
                      const TensorMap& reference, const FloorSource& floor, const CompareOptions& options,
                      Comparison* comparison);

// Largest |a - b|; infinite where the shapes differ or one is NaN and the other is not.
double largest_difference(const Tensor& a, const Tensor& b);

}  // namespace opdiff
