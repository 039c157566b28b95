// The reference evaluator: a graph's tensors by the meta-operators, each rounded to its dtype (the reference chain),
// and the noise floor of whole graphs.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace opdiff {

// True when there is a meta-operator for the node's domain and op, for this opset.
bool has_reference(const Node& node, int opset);

// For an error about types or gradients that could not be worked out: "; node 'act': no meta-operator for Erf" of the
// first such node, empty where there is none.
std::string unknown_operator_hint(const Graph& graph);

// The correctly rounded outputs of one node on exact inputs (nullptr: absent). One tensor an output (also for outputs
// that the node leaves unnamed). Errors: refused attributes, shapes, types, with operator, attribute and value.
Expected<std::vector<Tensor>> evaluate_node(const Node& node, int opset, std::span<const Tensor* const> inputs);

struct NodeVisit {
  int index;
  const Node* node;
  std::vector<const Tensor*> inputs;  // by slot (slot_names of graph/uses.h); nullptr: absent
  std::vector<const Tensor*> outputs;
};
using Visitor = std::function<Expected<void>(const NodeVisit&)>;
using ForeignEvaluator = std::function<Expected<std::vector<Tensor>>(const Node&, std::span<const Tensor* const>)>;

// Walks a validated graph in order; `visit` is called after each node with its inputs and reference outputs; tensors
// are dropped after their last use. A node without a reference is asked of `foreign` (which may call a backend);
// without it that is an error. Returns the graph outputs.
Expected<TensorMap> evaluate_graph(const Graph& graph, const TensorMap& inputs, const Visitor& visit = {},
                                   const ForeignEvaluator& foreign = {});

// The same with the results of every node changed by `disturb` before anybody reads them (noise floor).
using Disturbance = std::function<void(int node, std::vector<Tensor>& outputs)>;
Expected<TensorMap> evaluate_perturbed(const Graph& graph, const TensorMap& inputs, const Disturbance& disturb,
                                       const ForeignEvaluator& foreign = {});

// Types of every tensor of the graph (name -> type) by the operators' shape rules, from the types of the graph inputs;
// shape unknown where it depends on data. An error names the node whose types or shapes are inconsistent.
Expected<std::map<std::string, TensorType>> infer_types(const Graph& graph,
                                                        const std::map<std::string, TensorType>& inputs);

// The noise floor of the graph's outputs (numerics.md, section 6): `runs` evaluations in which each node's output is
// perturbed by a random error of its own deviation and rounded to its dtype. Per output name, s per element (root mean
// square difference from the unperturbed run), floored at the median of those that are not 0. Depends on the seed
// alone.
Expected<std::map<std::string, std::vector<double>>> noise_floor(const Graph& graph, const TensorMap& inputs, int runs,
                                                                 std::uint64_t seed,
                                                                 const ForeignEvaluator& foreign = {});

}  // namespace opdiff
