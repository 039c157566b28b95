// The streamed check of every node alone: the reference chain is walked once; nodes go to the backends in batches, each
// node on bit-identical inputs of that chain, and what comes back is judged while the next framework runs.
#pragma once

#include <vector>

#include "plan/comparison.h"
#include "plan/cut.h"
#include "plan/options.h"

namespace opdiff {

// Fills `comparison->nodes` and `unproven` (backends in the order of `comparison->backends`, which the sources must
// match; specs are known before, processes may still be starting). Returns the reference's graph outputs. Errors are
// the model's or the inputs'; what a backend does wrong is data. An interruption leaves what has been judged and is no
// error: the outputs are then empty. On an error, the nodes before the one that it names have been judged.
Expected<TensorMap> check_nodes(const Graph& graph, const TensorMap& inputs, const std::vector<BackendSource>& backends,
                                const CompareOptions& options, Comparison* comparison);

// Same operator, attributes and initialisers, bit-identical inputs: one run serves both.
bool identical_case(const Graph& graph, const NodeTensors& a, const NodeTensors& b);

}  // namespace opdiff
