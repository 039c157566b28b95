#include "graph/uses.h"

#include <algorithm>
#include <set>
#include <unordered_set>

namespace opdiff {
namespace {

using Names = std::unordered_set<std::string>;

Names names_defined_in(const Graph& graph) {
  Names defined;
  for (const auto& [name, tensor] : graph.initialisers) defined.insert(name);
  for (const ValueInfo& input : graph.inputs) defined.insert(input.name);
  for (const Node& node : graph.nodes) defined.insert(node.outputs.begin(), node.outputs.end());
  return defined;
}

void collect_captured(const Node& node, std::set<std::string>& captured) {
  for (const auto& [key, attribute] : node.attributes) {
    const auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (subgraph == nullptr) continue;
    std::set<std::string> used;
    for (const Node& inner : (*subgraph)->nodes) {
      used.insert(inner.inputs.begin(), inner.inputs.end());
      collect_captured(inner, used);
    }
    for (const ValueInfo& output : (*subgraph)->outputs) used.insert(output.name);
    const Names defined = names_defined_in(**subgraph);
    for (const std::string& name : used)
      if (!name.empty() && !defined.contains(name)) captured.insert(name);
  }
}

void sort_unique(std::vector<int>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

std::vector<std::string> slot_names(const Node& node) {
  std::set<std::string> captured;
  collect_captured(node, captured);
  std::vector<std::string> names = node.inputs;
  for (const std::string& name : captured)
    if (std::find(node.inputs.begin(), node.inputs.end(), name) == node.inputs.end()) names.push_back(name);
  return names;
}

std::vector<std::string> used_names(const Node& node) {
  std::vector<std::string> names;
  Names seen;
  for (std::string& name : slot_names(node))
    if (!name.empty() && seen.insert(name).second) names.push_back(std::move(name));
  return names;
}

void rename_captured(Node& node, const std::unordered_map<std::string, std::string>& names) {
  for (auto& [key, attribute] : node.attributes) {
    auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (subgraph == nullptr) continue;
    auto copy = std::make_shared<Graph>(**subgraph);
    auto visible = names;
    for (const std::string& name : names_defined_in(*copy)) visible.erase(name);
    const auto rename = [&visible](std::string& name) {
      if (const auto found = visible.find(name); found != visible.end()) name = found->second;
    };
    for (Node& inner : copy->nodes) {
      for (std::string& name : inner.inputs) rename(name);
      rename_captured(inner, visible);
    }
    for (ValueInfo& output : copy->outputs) rename(output.name);
    *subgraph = std::move(copy);
  }
}

Uses::Uses(const Graph& graph) : predecessors_(graph.nodes.size()), successors_(graph.nodes.size()) {
  const int count = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < count; ++i)
    for (const std::string& name : graph.nodes[static_cast<std::size_t>(i)].outputs)
      if (!name.empty()) producers_.emplace(name, i);
  for (const ValueInfo& output : graph.outputs) outputs_[output.name] = true;
  for (int i = 0; i < count; ++i) {
    for (const std::string& name : used_names(graph.nodes[static_cast<std::size_t>(i)])) {
      consumers_[name].push_back(i);
      const int from = producer(name);
      if (from < 0) continue;
      predecessors_[static_cast<std::size_t>(i)].push_back(from);
      successors_[static_cast<std::size_t>(from)].push_back(i);
    }
  }
  for (auto& list : predecessors_) sort_unique(list);
  for (auto& list : successors_) sort_unique(list);
}

int Uses::producer(const std::string& name) const {
  const auto found = producers_.find(name);
  return found == producers_.end() ? -1 : found->second;
}

const std::vector<int>& Uses::consumers(const std::string& name) const {
  static const std::vector<int> kNone;
  const auto found = consumers_.find(name);
  return found == consumers_.end() ? kNone : found->second;
}

bool Uses::is_graph_output(const std::string& name) const { return outputs_.contains(name); }

std::optional<Tensor> constant_value(const Node& node) {
  if (node.op != "Constant" || !node.domain.empty() || node.attributes.size() != 1) return std::nullopt;
  const auto& [name, attribute] = *node.attributes.begin();
  if (const auto* tensor = std::get_if<Tensor>(&attribute); tensor && name == "value") return *tensor;
  if (const auto* number = std::get_if<float>(&attribute); number && name == "value_float")
    return Tensor::scalar_like(DType::f32, *number);
  if (const auto* number = std::get_if<std::int64_t>(&attribute); number && name == "value_int")
    return Tensor::from_int64s(DType::i64, {}, {number, 1});
  if (const auto* list = std::get_if<std::vector<float>>(&attribute); list && name == "value_floats") {
    const std::vector<double> values(list->begin(), list->end());
    return Tensor::from_doubles(DType::f32, {static_cast<std::int64_t>(values.size())}, values);
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&attribute); list && name == "value_ints")
    return Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(list->size())}, *list);
  return std::nullopt;
}

}  // namespace opdiff
