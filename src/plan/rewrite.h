// The same node written another way, for the question whether an importer misread it: broadcasting made explicit, an
// attribute for an input or the other way round. Only rewrites whose result is the same by the operator's definition.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace opdiff {

struct RewrittenNode {
  Node node;
  int opset = 0;                              // of the default domain
  std::vector<std::optional<Tensor>> inputs;  // per slot
  std::string how;                            // "operands broadcast before", "axes as an attribute"
};

// nullopt: no such rewrite. A mere change of opset is none: a runtime may have another kernel for each opset, so that
// it tells nothing about the importer (tests/cases/ort-avgpool-ceil-cip-opset18 is a kernel's fault and right at opset
// 19).
std::optional<RewrittenNode> rewrite_node(const Node& node, int opset, const std::vector<const Tensor*>& inputs);

}  // namespace opdiff
