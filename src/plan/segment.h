// Nodes side by side with the tensors they are fed, ready to be sent: graph/segments.h cuts the graph, here the tensors
// are put to their names.
#pragma once

#include <string>
#include <vector>

#include "graph/segments.h"
#include "graph/uses.h"

namespace opdiff {

// Sorted node indices.
using NodeSet = std::vector<int>;

struct NodeTensors {
  int index = 0;
  std::vector<const Tensor*> inputs;   // per slot (slot_names of graph/uses.h); nullptr: absent
  std::vector<const Tensor*> outputs;  // of the reference, for their types; may be shorter, nullptr: not known
};

struct NodeBatch {
  IsolatedNodes isolated;
  TensorMap feeds;

  // The name in the batch of output `slot` of the node at `place`; empty where nobody uses it.
  std::string output_name(std::size_t place, std::size_t slot) const;
};
NodeBatch batch_of(const Graph& graph, const std::vector<NodeTensors>& nodes);

// The given tensors of one node: an input by slot.
std::vector<const Tensor*> pointers_to(const std::vector<std::optional<Tensor>>& tensors);

TensorType type_of(const Tensor& tensor);

// The label of a segment of partition_into_convex_segments: that of its first node that is no Constant.
int label_of(const Graph& graph, const NodeSet& segment, const std::vector<int>& labels);

// Weakly connected parts of `nodes`, each sorted, in order of their first node.
std::vector<NodeSet> connected_parts(const Uses& uses, const NodeSet& nodes);

}  // namespace opdiff
