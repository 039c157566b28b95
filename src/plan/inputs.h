// Inputs for a model that none were given for, and the check of those that were.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace opdiff {

// Standard normal floats, integers 0 to 9, random booleans: by the seed and the input's name alone. `types` as
// input_types(graph) gives them.
TensorMap draw_inputs(const std::map<std::string, TensorType>& types, std::uint64_t seed);

// Declared types of the graph's outputs against what the operators make (`inferred`, by infer_types); an error names
// the output.
Expected<void> check_declared_outputs(const Graph& graph, const std::map<std::string, TensorType>& inferred);

struct SplitInputs {
  TensorMap inputs;  // of the model
  TensorMap extra;   // whatever else the file holds: labels, for one
};
// The error names an input that is missing, and what the file has instead.
Expected<SplitInputs> split_inputs(const Graph& graph, TensorMap given, const std::string& file);

}  // namespace opdiff
