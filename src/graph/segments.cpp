#include "graph/segments.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "graph/uses.h"

namespace opdiff {
namespace {

const Node& node_at(const Graph& graph, int index) {
  OPDIFF_CHECK(index >= 0 && static_cast<std::size_t>(index) < graph.nodes.size());
  return graph.nodes[static_cast<std::size_t>(index)];
}

std::vector<int> sorted_unique(std::vector<int> nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

// Looks types up in the order that TypeMap promises.
class Types {
 public:
  Types(const Graph& graph, const TypeMap& types) : types_(types) {
    for (const auto* infos : {&graph.inputs, &graph.outputs, &graph.values})
      for (const ValueInfo& info : *infos) declared_.emplace(info.name, &info);
  }
  ValueInfo info(const std::string& name, const std::string& new_name) const {
    ValueInfo result;
    if (const auto declared = declared_.find(name); declared != declared_.end()) result = *declared->second;
    result.name = new_name;
    const auto found = types_.find(name);
    if (found == types_.end()) return result;
    result.dtype = found->second.dtype;
    if (!found->second.shape) return result;
    result.shape.emplace();
    for (const std::int64_t size : *found->second.shape) result.shape->push_back({size, ""});
    return result;
  }

 private:
  const TypeMap& types_;
  std::unordered_map<std::string, const ValueInfo*> declared_;
};

// Name, versions and nothing else.
Graph empty_like(const Graph& graph) {
  Graph result;
  result.name = graph.name;
  result.ir_version = graph.ir_version;
  result.opsets = graph.opsets;
  return result;
}

// The value of a tensor that never changes: an initialiser, or what a Constant node makes.
std::optional<Tensor> fixed_value(const Graph& graph, const Uses& uses, const std::string& name) {
  if (const auto found = graph.initialisers.find(name); found != graph.initialisers.end()) return found->second;
  const int producer = uses.producer(name);
  return producer < 0 ? std::nullopt : constant_value(node_at(graph, producer));
}

// Members among a graph's nodes, as flags.
std::vector<bool> membership(const Graph& graph, const std::vector<int>& nodes) {
  std::vector<bool> member(graph.nodes.size(), false);
  for (const int node : nodes) {
    OPDIFF_CHECK(node >= 0 && static_cast<std::size_t>(node) < member.size());
    member[static_cast<std::size_t>(node)] = true;
  }
  return member;
}

bool used_outside(const Uses& uses, const std::vector<bool>& member, const std::string& name) {
  const auto& consumers = uses.consumers(name);
  return uses.is_graph_output(name) ||
         std::any_of(consumers.begin(), consumers.end(), [&](int i) { return !member[static_cast<std::size_t>(i)]; });
}

}  // namespace

Graph extract_subgraph(const Graph& graph, const std::vector<int>& nodes, const TypeMap& types) {
  const Uses uses(graph);
  const Types type_of(graph, types);
  const std::vector<bool> member = membership(graph, nodes);
  Graph result = empty_like(graph);
  std::set<std::string> made, needed;
  for (const int index : sorted_unique(nodes)) {
    const Node& node = node_at(graph, index);
    result.nodes.push_back(node);
    for (const std::string& name : used_names(node)) {
      const int producer = uses.producer(name);
      if ((producer >= 0 && member[static_cast<std::size_t>(producer)]) || !needed.insert(name).second) continue;
      if (auto value = fixed_value(graph, uses, name))
        result.initialisers.emplace(name, *std::move(value));
      else
        result.inputs.push_back(type_of.info(name, name));
    }
    for (const std::string& name : node.outputs)
      if (!name.empty()) made.insert(name);
  }
  const auto add_outputs = [&](auto is_output) {
    for (const Node& node : result.nodes)
      for (const std::string& name : node.outputs)
        if (!name.empty() && is_output(name)) result.outputs.push_back(type_of.info(name, name));
  };
  add_outputs([&](const std::string& name) { return used_outside(uses, member, name); });
  if (result.outputs.empty()) add_outputs([&](const std::string& name) { return uses.consumers(name).empty(); });
  for (const ValueInfo& info : graph.values)
    if (made.contains(info.name)) result.values.push_back(info);
  std::erase_if(result.values, [&](const ValueInfo& info) {
    return std::any_of(result.outputs.begin(), result.outputs.end(),
                       [&](const ValueInfo& output) { return output.name == info.name; });
  });
  return result;
}

std::vector<int> convex_closure(const Graph& graph, std::vector<int> nodes) {
  const Uses uses(graph);
  // below: a member or a descendant of one; above: a member or an ancestor of one.
  std::vector<bool> below = membership(graph, nodes);
  std::vector<bool> above = below;
  const int count = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < count; ++i)
    for (const int before : uses.predecessors(i))
      if (below[static_cast<std::size_t>(before)]) below[static_cast<std::size_t>(i)] = true;
  for (int i = count - 1; i >= 0; --i)
    for (const int after : uses.successors(i))
      if (above[static_cast<std::size_t>(after)]) above[static_cast<std::size_t>(i)] = true;
  std::vector<int> closure;
  for (int i = 0; i < count; ++i)
    if (below[static_cast<std::size_t>(i)] && above[static_cast<std::size_t>(i)]) closure.push_back(i);
  return closure;
}

bool is_convex(const Graph& graph, const std::vector<int>& nodes) {
  return convex_closure(graph, nodes) == sorted_unique(nodes);
}

namespace {

// The state of one attempt at a partition. A segment is a block of one topological order, so it is convex,
// and the segments in their order cannot depend on each other in a cycle.
class Partition {
 public:
  Partition(const Uses& uses, const std::vector<int>& labels, const std::vector<bool>& constant)
      : uses_(uses), labels_(labels), done_(constant) {}

  // The nodes of `label` that can run now, one after the other.
  std::vector<int> growable(int label) const {
    std::vector<bool> done = done_;
    std::vector<int> segment;
    for (int i = 0; i < static_cast<int>(done.size()); ++i) {
      if (done[static_cast<std::size_t>(i)] || labels_[static_cast<std::size_t>(i)] != label) continue;
      const auto& before = uses_.predecessors(i);
      if (!std::all_of(before.begin(), before.end(), [&](int k) { return done[static_cast<std::size_t>(k)]; }))
        continue;
      done[static_cast<std::size_t>(i)] = true;
      segment.push_back(i);
    }
    return segment;
  }

  // The label of the largest segment that can be taken now (the smallest label of several); nullopt when all
  // is done.
  std::optional<int> best_label() const {
    std::optional<int> best;
    std::size_t size = 0;
    for (const int label : std::set<int>(labels_.begin(), labels_.end())) {
      const std::size_t candidate = growable(label).size();
      if (candidate > size) best = label, size = candidate;
    }
    return best;
  }

  void take(const std::vector<int>& segment) {
    for (const int node : segment) done_[static_cast<std::size_t>(node)] = true;
    segments_.push_back(segment);
  }

  std::vector<std::vector<int>> run(int first_label) {
    take(growable(first_label));
    while (const auto label = best_label()) take(growable(*label));
    std::erase_if(segments_, [](const auto& segment) { return segment.empty(); });
    return std::move(segments_);
  }

 private:
  const Uses& uses_;
  const std::vector<int>& labels_;
  std::vector<bool> done_;
  std::vector<std::vector<int>> segments_;
};

}  // namespace

std::vector<std::vector<int>> partition_into_convex_segments(const Graph& graph,
                                                             const std::vector<int>& label_of_node) {
  OPDIFF_CHECK(label_of_node.size() == graph.nodes.size());
  const Uses uses(graph);
  std::vector<bool> constant(graph.nodes.size());
  for (std::size_t i = 0; i < constant.size(); ++i) constant[i] = constant_value(graph.nodes[i]).has_value();

  std::vector<std::vector<int>> best;
  for (const int label : std::set<int>(label_of_node.begin(), label_of_node.end())) {
    auto segments = Partition(uses, label_of_node, constant).run(label);
    if (best.empty() || segments.size() < best.size()) best = std::move(segments);
  }
  // Constants go to their first user, or to the first segment when they have none.
  for (int i = 0; i < static_cast<int>(constant.size()); ++i) {
    if (!constant[static_cast<std::size_t>(i)]) continue;
    if (best.empty()) best.emplace_back();
    const auto& users = uses.successors(i);
    auto home = std::find_if(best.begin(), best.end(), [&](const std::vector<int>& segment) {
      return std::any_of(segment.begin(), segment.end(),
                         [&](int node) { return std::binary_search(users.begin(), users.end(), node); });
    });
    (home == best.end() ? best.front() : *home).push_back(i);
  }
  for (auto& segment : best) std::sort(segment.begin(), segment.end());
  return best;
}

IsolatedNodes isolate_nodes(const Graph& graph, const std::vector<int>& nodes, const TypeMap& types) {
  const Uses uses(graph);
  const Types type_of(graph, types);
  IsolatedNodes result;
  result.graph = empty_like(graph);
  // Initialisers first: their names are taken.
  for (const int index : nodes)
    for (const std::string& name : used_names(node_at(graph, index)))
      if (auto value = fixed_value(graph, uses, name)) result.graph.initialisers.emplace(name, *std::move(value));

  for (const int index : nodes) {
    Node node = node_at(graph, index);
    std::unordered_map<std::string, std::string> renamed{{"", ""}};
    const auto rename = [&](const std::string& name) {
      std::string separator = "/";
      std::string fresh;
      do {
        fresh = fmt::format("{}{}{}", index, separator, name);
        separator += "/";
      } while (result.graph.initialisers.contains(fresh));
      renamed[name] = fresh;
      return fresh;
    };
    for (const std::string& name : used_names(node)) {
      if (result.graph.initialisers.contains(name)) continue;
      const std::string fresh = rename(name);
      result.graph.inputs.push_back(type_of.info(name, fresh));
      result.inputs[fresh] = name;
    }
    const auto is_used = [&](const std::string& name) {
      return uses.is_graph_output(name) || !uses.consumers(name).empty();
    };
    const bool any_used = std::any_of(node.outputs.begin(), node.outputs.end(), is_used);
    for (const std::string& name : node.outputs) {
      if (name.empty()) continue;
      const std::string fresh = rename(name);
      if (any_used && !is_used(name)) continue;
      result.graph.outputs.push_back(type_of.info(name, fresh));
      result.outputs[fresh] = name;
    }
    rename_captured(node, renamed);
    for (auto* names : {&node.inputs, &node.outputs})
      for (std::string& name : *names)
        if (const auto found = renamed.find(name); found != renamed.end()) name = found->second;
    result.graph.nodes.push_back(std::move(node));
  }
  return result;
}

}  // namespace opdiff
