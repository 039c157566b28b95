// Where a NaN or an infinity came from: the first node of a training step that made one out of finite inputs.
#pragma once

#include "train/execution.h"

namespace opdiff {

bool all_finite(const Tensor& tensor);

// Evaluates the step node by node, each on its own backend. One sentence: the node, its operator, backend, the first
// bad element, and whether the reference has it, too. `noticed` is the tensor in which it was seen.
std::string explain_non_finite(const Graph& graph, const TypeMap& types, const TensorMap& inputs,
                               const std::vector<int>& labels, std::vector<Party>& parties, const std::string& noticed);

}  // namespace opdiff
