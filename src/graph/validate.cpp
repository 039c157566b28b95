#include "graph/validate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_set>

#include "graph/text.h"
#include "graph/uses.h"

namespace opdiff {
namespace {

using Names = std::unordered_set<std::string>;

std::string named(const Node& node) { return fmt::format("node '{}' ({})", node.id, node.op); }

// Who makes each tensor; the error is a tensor that two make.
Expected<void> check_single_producers(const Graph& graph) {
  std::map<std::string, std::string> makers;
  const auto add = [&](const std::string& name, const std::string& maker) -> Expected<void> {
    const auto [entry, is_new] = makers.emplace(name, maker);
    if (!is_new) return make_error("tensor '{}' is made twice: by {} and by {}", name, entry->second, maker);
    return {};
  };
  for (const ValueInfo& input : graph.inputs) OPDIFF_RETURN_IF_ERROR(add(input.name, "the graph's inputs"));
  for (const auto& [name, tensor] : graph.initialisers) OPDIFF_RETURN_IF_ERROR(add(name, "the initialisers"));
  for (const Node& node : graph.nodes)
    for (const std::string& name : node.outputs)
      if (!name.empty()) OPDIFF_RETURN_IF_ERROR(add(name, named(node)));
  std::unordered_set<std::string> ids;
  for (const Node& node : graph.nodes)
    if (!ids.insert(node.id).second) return make_error("two nodes have the id '{}'", node.id);
  return {};
}

// Indices in topological order, the smallest ready index first; shorter than the graph if there is a cycle.
std::vector<int> topological_order(const Graph& graph, const Uses& uses) {
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  std::vector<std::size_t> missing(graph.nodes.size());
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    missing[static_cast<std::size_t>(i)] = uses.predecessors(i).size();
    if (uses.predecessors(i).empty()) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const int next : uses.successors(node))
      if (--missing[static_cast<std::size_t>(next)] == 0) ready.push(next);
  }
  return order;
}

// Walks backwards among the nodes that could not be ordered until one comes again.
std::string describe_cycle(const Graph& graph, const Uses& uses, const std::vector<int>& order) {
  std::vector<bool> stuck(graph.nodes.size(), true);
  for (const int node : order) stuck[static_cast<std::size_t>(node)] = false;
  int node = static_cast<int>(std::find(stuck.begin(), stuck.end(), true) - stuck.begin());
  std::vector<int> path;
  while (std::find(path.begin(), path.end(), node) == path.end()) {
    path.push_back(node);
    const auto& before = uses.predecessors(node);
    node = *std::find_if(before.begin(), before.end(), [&](int i) { return stuck[static_cast<std::size_t>(i)]; });
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), node));
  std::reverse(path.begin(), path.end());
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(path.size(), kShown); ++i)
    names.push_back(named(graph.nodes[static_cast<std::size_t>(path[i])]));
  if (path.size() > kShown) names.push_back(fmt::format("... ({} nodes)", path.size()));
  names.push_back(names.front());
  return fmt::format("{}", fmt::join(names, " -> "));
}

Expected<void> validate_in_scope(Graph& graph, const Names& outer, bool is_main) {
  OPDIFF_RETURN_IF_ERROR(check_single_producers(graph));
  Names known = outer;
  for (const ValueInfo& input : graph.inputs) known.insert(input.name);
  for (const auto& [name, tensor] : graph.initialisers) known.insert(name);
  for (const Node& node : graph.nodes) known.insert(node.outputs.begin(), node.outputs.end());
  known.erase("");

  for (Node& node : graph.nodes) {
    for (const std::string& name : node.inputs)
      if (!name.empty() && !known.contains(name))
        return make_error("{}: input '{}' is made by no node and is neither an input nor an initialiser", named(node),
                          name);
    for (auto& [name, attribute] : node.attributes) {
      auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (subgraph == nullptr) continue;
      auto result = validate_in_scope(**subgraph, known, false);
      if (!result) return with_context(fmt::format("{}: attribute '{}'", named(node), name), result.error());
    }
  }

  const Uses uses(graph);
  const std::vector<int> order = topological_order(graph, uses);
  if (order.size() < graph.nodes.size())
    return make_error("the graph has a cycle: {}", describe_cycle(graph, uses, order));
  std::vector<Node> sorted;
  for (const int index : order) sorted.push_back(std::move(graph.nodes[static_cast<std::size_t>(index)]));
  graph.nodes = std::move(sorted);

  if (is_main && graph.outputs.empty()) return make_error("the graph has no outputs");
  Names outputs;
  for (const ValueInfo& output : graph.outputs) {
    if (!known.contains(output.name))
      return make_error("graph output '{}' is made by no node and is neither an input nor an initialiser", output.name);
    if (is_main && !outputs.insert(output.name).second)
      return make_error("graph output '{}' is declared twice", output.name);
  }
  return {};
}

// Numbers given to symbols so far, with where each came from.
class Symbols {
 public:
  Expected<void> set(const std::string& symbol, std::int64_t value, const std::string& source) {
    const auto [entry, is_new] = values_.emplace(symbol, std::pair(value, source));
    if (!is_new && entry->second.first != value)
      return make_error("dimension '{}' is {} by {}, but {} by {}", symbol, entry->second.first, entry->second.second,
                        value, source);
    return {};
  }
  void apply(std::vector<ValueInfo>& infos) const {
    for (ValueInfo& info : infos) {
      if (!info.shape) continue;
      for (Dimension& dimension : *info.shape)
        if (const auto found = values_.find(dimension.symbol); !dimension.value && found != values_.end())
          dimension.value = found->second.first;
    }
  }

 private:
  std::map<std::string, std::pair<std::int64_t, std::string>> values_;
};

Expected<void> bind_input(ValueInfo& info, const Tensor& given, Symbols& symbols) {
  const std::string got = to_string(TensorType{given.dtype(), given.shape()});
  bool agrees = info.dtype == given.dtype() && (!info.shape || info.shape->size() == given.shape().size());
  for (std::size_t k = 0; agrees && info.shape && k < given.shape().size(); ++k)
    agrees = (*info.shape)[k].value.value_or(given.shape()[k]) == given.shape()[k];
  if (!agrees) return make_error("input '{}' must be {}, but {} was given", info.name, to_text(info), got);
  if (!info.shape) info.shape.emplace(given.shape().size());
  for (std::size_t k = 0; k < given.shape().size(); ++k) {
    Dimension& dimension = (*info.shape)[k];
    if (!dimension.value && !dimension.symbol.empty())
      OPDIFF_RETURN_IF_ERROR(
          symbols.set(dimension.symbol, given.shape()[k], fmt::format("input '{}' ({})", info.name, got)));
    dimension.value = given.shape()[k];
  }
  return {};
}

}  // namespace

Expected<void> validate(Graph& graph) { return validate_in_scope(graph, {}, true); }

Expected<void> bind_dimensions(Graph& graph, const std::map<std::string, std::int64_t>& dims, const TensorMap& inputs,
                               bool all_inputs) {
  std::vector<std::string> declared, missing;
  Names known_symbols;
  for (const ValueInfo& info : graph.inputs) {
    declared.push_back(fmt::format("'{}' {}", info.name, to_text(info)));
    if (!inputs.contains(info.name)) missing.push_back(declared.back());
    for (const Dimension& dimension : info.shape.value_or(std::vector<Dimension>{}))
      if (!dimension.value && !dimension.symbol.empty()) known_symbols.insert(dimension.symbol);
  }
  for (const auto& [name, tensor] : inputs) {
    const bool is_input = std::any_of(graph.inputs.begin(), graph.inputs.end(),
                                      [&name = name](const ValueInfo& info) { return info.name == name; });
    if (!is_input)
      return make_error("the model has no input '{}'{}; its inputs are {}", name,
                        graph.initialisers.contains(name) ? " (it is an initialiser)" : "",
                        declared.empty() ? "none" : fmt::format("{}", fmt::join(declared, ", ")));
  }
  if (all_inputs && !missing.empty()) return make_error("missing input {}", fmt::join(missing, ", "));

  Symbols symbols;
  for (const auto& [symbol, value] : dims) {
    if (value < 0) return make_error("dimension '{}' cannot be {}", symbol, value);
    if (!known_symbols.contains(symbol))
      return make_error("the model's inputs have no dimension '{}'; they are {}", symbol, fmt::join(declared, ", "));
    OPDIFF_RETURN_IF_ERROR(symbols.set(symbol, value, "--dim"));
  }
  for (ValueInfo& info : graph.inputs)
    if (const auto given = inputs.find(info.name); given != inputs.end())
      OPDIFF_RETURN_IF_ERROR(bind_input(info, given->second, symbols));
  symbols.apply(graph.inputs);
  symbols.apply(graph.values);
  symbols.apply(graph.outputs);
  return {};
}

Expected<std::map<std::string, TensorType>> input_types(const Graph& graph) {
  std::map<std::string, TensorType> types;
  for (const ValueInfo& info : graph.inputs) {
    if (!info.shape) return make_error("input '{}' has no known rank: give the input itself", info.name);
    Shape shape;
    for (const Dimension& dimension : *info.shape) {
      if (!dimension.value)
        return make_error("input '{}' is {}: give the input itself{}", info.name, to_text(info),
                          dimension.symbol.empty() ? std::string() : fmt::format(" or --dim {}=N", dimension.symbol));
      shape.push_back(*dimension.value);
    }
    types[info.name] = {info.dtype, std::move(shape)};
  }
  return types;
}

}  // namespace opdiff
