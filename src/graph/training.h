// What a training graph is, beside a plain list of nodes: which of its nodes a framework's own autodiff can replace.
#pragma once

#include <map>
#include <set>
#include <string>

namespace opdiff {

struct Training {
  // Tensor of the forward part -> tensor that holds its cotangent (a graph input, or for a loss the constant 1).
  std::map<std::string, std::string> cotangents;
  // Tensor of the forward part -> tensor that holds its gradient.
  std::map<std::string, std::string> gradients;
  // Ids of the nodes that work the gradients out: what autodiff replaces.
  std::set<std::string> backward;
  // Whether parameters are updated: a `step`, else a `gradient`.
  bool updates = false;
};

}  // namespace opdiff
