// Reverse-mode differentiation of a whole graph: its backward pass as further nodes, so that everything which compares,
// isolates and localises nodes works on gradients as it does on values. Griewank and Walther, Evaluating Derivatives,
// chapter 3.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/segments.h"
#include "graph/training.h"

namespace opdiff {

struct TrainingGraph {
  Graph graph;
  Training training;
};

// Appends to a validated graph, for each tensor of `wrt`, the nodes that make its gradient: one gradient node a node
// (domain opdiff.gradient, id ID + "/gradient"), and one Add for each further use of a tensor. `cotangents` names for
// each differentiated tensor the one that holds its cotangent; a name that is not in the graph becomes a graph input of
// the tensor's type. The gradients are graph outputs, named TENSOR + "/gradient". `types` has the types of all tensors.
// Errors name the node without a gradient, or the tensor of `wrt` on which nothing depends.
Expected<TrainingGraph> differentiate(const Graph& graph, const TypeMap& types,
                                      const std::map<std::string, std::string>& cotangents,
                                      const std::vector<std::string>& wrt);

// Floating initialisers and inputs on which a floating graph output depends through differentiable inputs, in order of
// their first use: what `wrt` usually is.
std::vector<std::string> differentiable_tensors(const Graph& graph, const TypeMap& types);

}  // namespace opdiff
