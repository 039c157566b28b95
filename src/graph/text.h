// A graph as text for people and messages, one line a node:
//     conv1: Conv(x, w, b) -> y  {strides=[1,1]}
#pragma once

#include <string>

#include "graph/graph.h"

namespace opdiff {

// "float[batch,3,?]"; "float[?]" where the rank is unknown.
std::string to_text(const ValueInfo& info);
// "[1,1]", "0.1", "\"same\"", "float[2,3]" (a tensor of more than 8 elements) or "int64[2]{3,4}", "graph{3
// nodes}".
std::string to_text(const Attribute& attribute);
std::string to_text(const Node& node);
// Inputs, initialisers, nodes and outputs, a line each.
std::string to_text(const Graph& graph);

}  // namespace opdiff
