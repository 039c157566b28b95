// Checks of a graph that need no knowledge of operators, and the binding of symbolic dimensions by the
// inputs. What operators make of their inputs' types is the business of the shape inference (src/ops).
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace opdiff {

// Puts the nodes into topological order (order kept where it is one). Errors, with the node's id: a cycle, an
// input that nobody makes, a tensor made twice, a graph output that nobody makes; in subgraphs too.
Expected<void> validate(Graph& graph);

// Sets unknown and symbolic dimensions of the graph's inputs from `inputs` and from `dims` (--dim batch=4),
// and the same symbols in the other declared types. Errors name the input, what was expected and what was
// given. `all_inputs` = false: inputs may be missing (they will be generated).
Expected<void> bind_dimensions(Graph& graph, const std::map<std::string, std::int64_t>& dims, const TensorMap& inputs,
                               bool all_inputs = true);

// The types of the graph's inputs; an error while a dimension is not bound, which says how to bind it.
Expected<std::map<std::string, TensorType>> input_types(const Graph& graph);

}  // namespace opdiff
