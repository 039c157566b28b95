// Which nodes can be post-operations of the one before them, as oneDNN's users fuse: behind a convolution, Gemm or
// MatMul a chain of element-wise operators of one or two tensors, behind BatchNormalization a Relu. Whether oneDNN
// takes the operands of a chain is seen when it is built (program.cpp).
#include <algorithm>

#include "program.h"

namespace opdiff::onednn {
namespace {

constexpr std::size_t kMostPostOperations = 32;  // oneDNN's post_ops::capacity()

struct Uses {
  std::map<std::string, std::vector<std::size_t>> readers;
  std::map<std::string, std::size_t> producer;
  std::set<std::string> graph_outputs;
};

// The only reader of a node's output, where nothing else sees that output.
const sdk::Node* only_reader(const sdk::Graph& graph, const Uses& uses, const sdk::Node& node) {
  if (node.outputs.size() != 1 || uses.graph_outputs.count(node.outputs[0])) return nullptr;
  const auto readers = uses.readers.find(node.outputs[0]);
  if (readers == uses.readers.end() || readers->second.size() != 1) return nullptr;
  const sdk::Node& reader = graph.nodes[readers->second[0]];
  return reader.outputs.size() == 1 && reader.domain.empty() ? &reader : nullptr;
}

// Whether all that `node` reads beside `own` is there before the node at `index` runs.
bool rest_is_ready(const Uses& uses, const sdk::Node& node, const std::string& own, std::size_t index) {
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& name) {
    const auto producer = uses.producer.find(name);
    return name == own || producer == uses.producer.end() || producer->second < index;
  });
}

// Whether `next` can be computed along with what makes `result`.
bool can_follow(const sdk::Node& anchor, const sdk::Node& next, const std::string& result) {
  if (anchor.op == "BatchNormalization") return next.op == "Relu";
  if (is_eltwise(next.op)) return true;
  if (!binary_algorithm(next.op) || next.inputs.size() != 2) return false;
  return next.inputs[0] == result || next.op == "Add" || next.op == "Mul";
}

}  // namespace

std::vector<Fusion> find_fusions(const sdk::Graph& graph) {
  Uses uses;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const auto& name : graph.nodes[i].inputs) uses.readers[name].push_back(i);
    for (const auto& name : graph.nodes[i].outputs) uses.producer[name] = i;
  }
  for (const auto& output : graph.outputs) uses.graph_outputs.insert(output.name);

  std::vector<Fusion> fusions(graph.nodes.size());
  std::set<const sdk::Node*> taken;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const sdk::Node& anchor = graph.nodes[i];
    const bool known = anchor.op == "Conv" || anchor.op == "Gemm" || anchor.op == "MatMul" ||
                       (anchor.op == "BatchNormalization" && anchor.outputs.size() == 1);
    if (!anchor.domain.empty() || !known) continue;
    auto& followers = fusions[i].followers;
    const std::size_t most = anchor.op == "BatchNormalization" ? 1 : kMostPostOperations;
    const sdk::Node* last = &anchor;
    while (followers.size() < most) {
      const sdk::Node* next = only_reader(graph, uses, *last);
      if (!next || taken.count(next) || !can_follow(anchor, *next, last->outputs[0]) ||
          !rest_is_ready(uses, *next, last->outputs[0], i)) {
        break;
      }
      followers.push_back(next);
      last = next;
    }
    taken.insert(followers.begin(), followers.end());
  }
  return fusions;
}

}  // namespace opdiff::onednn
