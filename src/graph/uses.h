// Who makes a tensor and who uses it: the edges of a graph, subgraphs' references to outer tensors included.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace opdiff {

// The slots of a node: its inputs ("" where absent), then what its subgraphs take from outside besides.
std::vector<std::string> slot_names(const Node& node);

// The tensors that a node needs: those of its slots, each once, none empty.
std::vector<std::string> used_names(const Node& node);

// Renames what the subgraphs of a node take from outside (copies the subgraphs).
void rename_captured(Node& node, const std::unordered_map<std::string, std::string>& names);

// Built once for a graph that does not change meanwhile.
class Uses {
 public:
  explicit Uses(const Graph& graph);

  // Index of the node that makes the tensor; -1 for inputs, initialisers and unknown names.
  int producer(const std::string& name) const;
  // Indices of the nodes that use the tensor, ascending.
  const std::vector<int>& consumers(const std::string& name) const;
  bool is_graph_output(const std::string& name) const;
  // Edges between nodes, ascending, each once.
  const std::vector<int>& predecessors(int node) const { return predecessors_[static_cast<std::size_t>(node)]; }
  const std::vector<int>& successors(int node) const { return successors_[static_cast<std::size_t>(node)]; }

 private:
  std::unordered_map<std::string, int> producers_;
  std::unordered_map<std::string, std::vector<int>> consumers_;
  std::unordered_map<std::string, bool> outputs_;
  std::vector<std::vector<int>> predecessors_;
  std::vector<std::vector<int>> successors_;
};

// The value of a Constant node (value, value_float, value_floats, value_int, value_ints); nullopt for other
// nodes.
std::optional<Tensor> constant_value(const Node& node);

}  // namespace opdiff
