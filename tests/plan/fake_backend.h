// A backend in this process: the reference's own operators, with faults planted by node. So that plan/ and locate/ are
// tested without any framework.
#pragma once

#include <functional>
#include <set>

#include "reference/evaluate.h"
#include "workers/backend.h"

namespace opdiff {

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(std::string spec) {
    info_.spec = info_.name = std::move(spec);
    info_.version = "1.0";
  }

  // Edits what the node gives; ids are the model's, also in batches and segments.
  std::map<std::string, std::function<void(Tensor&)>> faults;
  // The second node's output is wrong when the first is in the same connected graph, or the graph does not load.
  std::vector<std::pair<std::string, std::string>> wrong_together;
  std::vector<std::pair<std::string, std::string>> failing_together;
  std::map<std::string, OutcomeKind> dying;  // by node: the whole graph ends so
  std::size_t most_isolated = SIZE_MAX;      // more isolated nodes in one graph take longer than the time limit
  int killed_in_run = 0;                     // the so-manieth run ends in a crash, whatever it computes
  int runs = 0;
  std::set<std::string> unsupported;  // by node: reported alone in isolated graphs
  std::vector<std::size_t> sizes;     // nodes of each graph that was prepared

  const BackendInfo& info() const override { return info_; }

  Outcome prepare(const Graph& graph, const PrepareOptions& options, int* handle) override {
    sizes.push_back(graph.nodes.size());
    for (const auto& [first, second] : failing_together) {
      if (!options.isolated && has(graph, first) && has(graph, second)) {
        return Outcome::failure(OutcomeKind::error, "does not load: " + first + " with " + second);
      }
    }
    if (options.isolated && graph.nodes.size() > most_isolated) {
      return Outcome::failure(OutcomeKind::timeout, "no answer in time");
    }
    *handle = next_++;
    graphs_[*handle] = {graph, options.isolated};
    return {};
  }

  Outcome run(int handle, const TensorMap& inputs, int) override {
    const auto& [graph, isolated] = graphs_.at(handle);
    if (++runs == killed_in_run) return Outcome::failure(OutcomeKind::crash, "killed");
    Outcome outcome;
    TensorMap tensors = inputs;
    for (const auto& [name, tensor] : graph.initialisers) tensors[name] = tensor;
    for (const Node& node : graph.nodes) {
      if (const auto death = dying.find(node.id); death != dying.end()) {
        return Outcome::failure(death->second, "died in " + node.id);
      }
      if (unsupported.count(node.id) > 0) {
        if (!isolated) return Outcome::failure(OutcomeKind::unsupported, node.op + " is not supported");
        outcome.node_failures[node.id] = {OutcomeKind::unsupported, node.op + " is not supported"};
        continue;
      }
      std::vector<const Tensor*> slots;
      for (const std::string& input : node.inputs) slots.push_back(input.empty() ? nullptr : &tensors.at(input));
      Expected<std::vector<Tensor>> outputs = compute(node, graph.opset(), slots);
      if (!outputs) return Outcome::failure(OutcomeKind::error, outputs.error().message);
      Tensor& first = outputs->front();
      if (const auto fault = faults.find(node.id); fault != faults.end()) {
        first = first.clone();
        fault->second(first);
      }
      for (const auto& [before, after] : wrong_together) {
        if (!isolated && node.id == after && has(graph, before)) {
          first = first.clone();
          first.mutable_as<float>()[0] += 1;
        }
      }
      for (std::size_t slot = 0; slot < node.outputs.size(); ++slot) tensors[node.outputs[slot]] = (*outputs)[slot];
      outcome.node_ms[node.id] = 0.5;
    }
    for (const ValueInfo& output : graph.outputs) {
      if (const auto found = tensors.find(output.name); found != tensors.end())
        outcome.outputs[output.name] = found->second;
    }
    outcome.wall_ms = {1};
    return outcome;
  }

  void release(int handle) override { graphs_.erase(handle); }
  BackendInfo& mutable_info() { return info_; }
  std::size_t open_graphs() const { return graphs_.size(); }

 private:
  // "Twice" is an operator that only this backend knows.
  static Expected<std::vector<Tensor>> compute(const Node& node, int opset, const std::vector<const Tensor*>& inputs) {
    if (node.op != "Twice") return evaluate_node(node, opset, inputs);
    Tensor result = inputs[0]->clone();
    for (float& value : result.mutable_as<float>()) value *= 2;
    return std::vector<Tensor>{result};
  }
  static bool has(const Graph& graph, const std::string& id) {
    for (const Node& node : graph.nodes) {
      if (node.id == id) return true;
    }
    return false;
  }

  BackendInfo info_;
  std::map<int, std::pair<Graph, bool>> graphs_;
  int next_ = 1;
};

// A chain of elementwise nodes over x: float[4, 8], with a constant in every other one.
inline Graph chain_graph(int size) {
  Graph graph;
  graph.inputs = {{"x", DType::f32, std::vector<Dimension>{{4, ""}, {8, ""}}}};
  for (int i = 0; i < size; ++i) {
    Node node;
    node.id = fmt::format("n{}", i);
    node.op = i % 2 == 0 ? "Sigmoid" : "Add";
    node.inputs = {i == 0 ? "x" : fmt::format("t{}", i - 1)};
    if (i % 2 == 1) {
      node.inputs.push_back(fmt::format("c{}", i));
      graph.initialisers[node.inputs[1]] = Tensor::scalar_like(DType::f32, 0.1 * i);
    }
    node.outputs = {fmt::format("t{}", i)};
    graph.nodes.push_back(node);
  }
  graph.outputs = {{fmt::format("t{}", size - 1), DType::f32, std::nullopt}};
  return graph;
}

}  // namespace opdiff
