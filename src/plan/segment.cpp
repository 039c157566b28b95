#include "plan/segment.h"

#include <algorithm>
#include <set>

namespace opdiff {

TensorType type_of(const Tensor& tensor) { return {tensor.dtype(), tensor.shape()}; }

std::vector<const Tensor*> pointers_to(const std::vector<std::optional<Tensor>>& tensors) {
  std::vector<const Tensor*> result;
  for (const auto& tensor : tensors) result.push_back(tensor ? &*tensor : nullptr);
  return result;
}

std::string NodeBatch::output_name(std::size_t place, std::size_t slot) const {
  const std::string& name = isolated.graph.nodes[place].outputs[slot];
  return isolated.outputs.count(name) > 0 ? name : "";
}

NodeBatch batch_of(const Graph& graph, const std::vector<NodeTensors>& nodes) {
  TypeMap types;
  std::vector<int> indices;
  for (const NodeTensors& tensors : nodes) {
    indices.push_back(tensors.index);
    const Node& node = graph.nodes[static_cast<std::size_t>(tensors.index)];
    const auto note = [&](const std::vector<std::string>& names, const std::vector<const Tensor*>& values) {
      for (std::size_t slot = 0; slot < names.size() && slot < values.size(); ++slot) {
        if (!names[slot].empty() && values[slot] != nullptr) types[names[slot]] = type_of(*values[slot]);
      }
    };
    note(slot_names(node), tensors.inputs);
    note(node.outputs, tensors.outputs);
  }
  NodeBatch batch;
  batch.isolated = isolate_nodes(graph, indices, types);
  for (std::size_t place = 0; place < nodes.size(); ++place) {
    const std::vector<std::string> slots = slot_names(graph.nodes[static_cast<std::size_t>(nodes[place].index)]);
    for (const std::string& name : used_names(batch.isolated.graph.nodes[place])) {
      const auto input = batch.isolated.inputs.find(name);
      if (input == batch.isolated.inputs.end()) continue;
      const auto slot = static_cast<std::size_t>(std::find(slots.begin(), slots.end(), input->second) - slots.begin());
      if (slot < nodes[place].inputs.size() && nodes[place].inputs[slot] != nullptr)
        batch.feeds[name] = *nodes[place].inputs[slot];
    }
  }
  return batch;
}

int label_of(const Graph& graph, const NodeSet& segment, const std::vector<int>& labels) {
  for (const int node : segment) {
    if (graph.nodes[static_cast<std::size_t>(node)].op != "Constant") return labels[static_cast<std::size_t>(node)];
  }
  return labels[static_cast<std::size_t>(segment.front())];
}

std::vector<NodeSet> connected_parts(const Uses& uses, const NodeSet& nodes) {
  std::vector<NodeSet> parts;
  std::set<int> left(nodes.begin(), nodes.end());
  while (!left.empty()) {
    NodeSet part, todo = {*left.begin()};
    left.erase(left.begin());
    while (!todo.empty()) {
      const int node = todo.back();
      part.push_back(node);
      todo.pop_back();
      for (const auto* neighbours : {&uses.predecessors(node), &uses.successors(node)}) {
        for (const int neighbour : *neighbours) {
          if (left.erase(neighbour) > 0) todo.push_back(neighbour);
        }
      }
    }
    std::sort(part.begin(), part.end());
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace opdiff
