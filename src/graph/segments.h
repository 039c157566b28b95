// Cutting a graph: a segment (a convex set of nodes) as a graph of its own, nodes side by side without a
// common edge, and the division of a graph among backends. All graphs here are validated ones (nodes in
// topological order), and a node is its index.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace opdiff {

// Types of inner tensors by name, as a run or the shape inference found them. Where a tensor is not in it,
// its declaration in the graph counts; where that is missing too, it is taken for f32 of unknown rank.
using TypeMap = std::map<std::string, TensorType>;

// The nodes as one graph. Inputs: the activations that they need from outside, in order of first use; never
// initialisers, which stay initialisers (those that are used). Constant nodes that are outside, but needed,
// become initialisers. Outputs: what nodes outside use and what the whole graph gives; if that is nothing,
// what no member uses. Tensors and ids keep their names.
Graph extract_subgraph(const Graph& graph, const std::vector<int>& nodes, const TypeMap& types);

// The nodes and every node on a path between two of them, ascending.
std::vector<int> convex_closure(const Graph& graph, std::vector<int> nodes);
bool is_convex(const Graph& graph, const std::vector<int>& nodes);

// Divides the graph into segments of one label each, in an order in which they can be run one after the
// other. Greedy: a segment takes all nodes of its label that can run; of all first labels the one that needs
// the fewest segments is taken. Constant nodes have no label: they are in the segment of their first user
// (extract_subgraph gives the others a copy).
std::vector<std::vector<int>> partition_into_convex_segments(const Graph& graph, const std::vector<int>& label_of_node);

struct IsolatedNodes {
  Graph graph;  // node k is nodes[k] of the whole graph, with the same id
  // Name in `graph` -> name in the whole graph.
  std::map<std::string, std::string> inputs;
  std::map<std::string, std::string> outputs;
};

// One graph in which the nodes stand side by side: tensor t of node i is called "i/t", initialisers keep
// their names and are shared, Constant nodes' values become initialisers. Outputs are those that somebody
// uses (all, if nobody uses any).
IsolatedNodes isolate_nodes(const Graph& graph, const std::vector<int>& nodes, const TypeMap& types);

}  // namespace opdiff
