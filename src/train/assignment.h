// Which backend computes which node of a training step. Pure; train/execution.h cuts the graph by it and runs the
// pieces.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "train/recipe.h"

namespace opdiff {

struct Assignment {
  std::vector<std::string> specs;  // the default first, then the others in order of their first use
  std::vector<int> labels;         // of each node: a place in `specs`

  const std::string& spec_of(int node) const {
    return specs[static_cast<std::size_t>(labels[static_cast<std::size_t>(node)])];
  }
};

// A binding names a node by its id ("fc3", "fc3.weight/update"), nodes by their operator ("Conv", "Adam", and
// "Conv/gradient" for backward nodes alone), or either by a pattern with * ? [...]. An id outranks an operator, an
// operator a pattern; among equals the last one counts. A backward node that no binding names goes with its forward
// node. The error quotes the binding that names nothing.
Expected<Assignment> assign(const Graph& step, const std::vector<Binding>& bindings, const std::string& backend);

// The same for the model alone: its nodes have the ids that they have in the step.
Assignment assign_like(const Graph& model, const Graph& step, const Assignment& assignment);

}  // namespace opdiff
