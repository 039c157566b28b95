#include "train/execution.h"

#include <algorithm>
#include <utility>

namespace opdiff {

AssignedGraph::AssignedGraph(const Graph& graph, const TypeMap& types, const std::vector<int>& labels,
                             std::vector<Party>& parties, const Training* training)
    : graph_(graph), parties_(parties), training_(training) {
  const bool alone = std::all_of(labels.begin(), labels.end(), [&](int label) { return label == labels.front(); });
  if (alone) {
    Segment whole;
    whole.label = labels.empty() ? 0 : labels.front();
    whole.source = &graph_;
    segments_.push_back(std::move(whole));
    return;
  }
  training_ = nullptr;
  for (NodeSet& nodes : partition_into_convex_segments(graph, labels)) {
    Segment segment;
    segment.label = label_of(graph, nodes, labels);
    segment.graph = extract_subgraph(graph, nodes, types);
    segment.nodes = std::move(nodes);
    segments_.push_back(std::move(segment));
  }
  for (std::size_t place = 0; place < segments_.size(); ++place) {
    segments_[place].source = &segments_[place].graph;
    for (const ValueInfo& input : segments_[place].graph.inputs) last_use_[input.name] = place;
  }
  for (const ValueInfo& output : graph.outputs) last_use_[output.name] = segments_.size();
}

AssignedGraph::~AssignedGraph() {
  for (Segment& segment : segments_) {
    Party& party = parties_[static_cast<std::size_t>(segment.label)];
    if (segment.handle < 0 || segment.of_death != party.deaths) continue;
    if (const auto backend = party.open()) (*backend)->release(segment.handle);
  }
}

Outcome AssignedGraph::failed(const Segment& segment, Outcome outcome) {
  Party& party = parties_[static_cast<std::size_t>(segment.label)];
  if (is_death(outcome.kind)) ++party.deaths;
  std::string where;
  if (!segment.nodes.empty()) {
    const auto id = [&](int index) { return graph_.nodes[static_cast<std::size_t>(index)].id; };
    where = segment.nodes.size() == 1
                ? fmt::format(", node '{}'", id(segment.nodes[0]))
                : fmt::format(", nodes '{}' to '{}'", id(segment.nodes.front()), id(segment.nodes.back()));
  }
  outcome.reason = fmt::format("{}{}: {}: {}", party.spec, where, to_string(outcome.kind), outcome.reason);
  return outcome;
}

Outcome AssignedGraph::run_segment(Segment& segment, const TensorMap& inputs) {
  Party& party = parties_[static_cast<std::size_t>(segment.label)];
  if (!party.open) {
    auto outputs = evaluate_graph(*segment.source, inputs);
    if (!outputs) return failed(segment, Outcome::failure(OutcomeKind::error, outputs.error().message));
    Outcome outcome;
    outcome.outputs = *std::move(outputs);
    return outcome;
  }
  const auto backend = party.open();
  if (!backend) return Outcome::failure(OutcomeKind::error, backend.error().message);
  if (segment.handle < 0 || segment.of_death != party.deaths) {
    PrepareOptions options;
    options.training = training_;
    Outcome prepared = (*backend)->prepare(*segment.source, options, &segment.handle);
    if (!prepared.ok()) {
      segment.handle = -1;
      return failed(segment, std::move(prepared));
    }
    segment.of_death = party.deaths;
  }
  Outcome outcome = (*backend)->run(segment.handle, inputs);
  return outcome.ok() ? outcome : failed(segment, std::move(outcome));
}

Outcome AssignedGraph::run(const TensorMap& inputs) {
  if (segments_.size() == 1) return run_segment(segments_[0], inputs);
  TensorMap alive = inputs;
  for (std::size_t place = 0; place < segments_.size(); ++place) {
    Segment& segment = segments_[place];
    TensorMap feeds;
    for (const ValueInfo& input : segment.graph.inputs) {
      const auto found = alive.find(input.name);
      if (found == alive.end())
        return Outcome::failure(OutcomeKind::error, fmt::format("nothing gives the tensor '{}'", input.name));
      feeds[input.name] = found->second;
      if (last_use_[input.name] == place) alive.erase(found);
    }
    Outcome outcome = run_segment(segment, feeds);
    if (!outcome.ok()) return outcome;
    for (auto& [name, tensor] : outcome.outputs) alive[name] = std::move(tensor);
  }
  Outcome result;
  for (const ValueInfo& output : graph_.outputs) {
    const auto found = alive.find(output.name);
    const auto fixed = graph_.initialisers.find(output.name);
    if (found == alive.end() && fixed == graph_.initialisers.end())
      return Outcome::failure(OutcomeKind::error, fmt::format("nothing gives the output '{}'", output.name));
    result.outputs[output.name] = found == alive.end() ? fixed->second : found->second;
  }
  return result;
}

Expected<std::vector<UnsupportedNode>> unsupported_nodes(const Graph& graph, const TypeMap& types,
                                                         const TensorMap& inputs, const std::vector<int>& labels,
                                                         int label, Party& party) {
  std::vector<int> nodes;
  for (std::size_t k = 0; k < labels.size(); ++k)
    if (labels[k] == label && graph.nodes[k].op != "Constant") nodes.push_back(static_cast<int>(k));
  std::vector<UnsupportedNode> result;
  if (!party.open || nodes.empty()) return result;
  TensorMap tensors;
  OPDIFF_TRY(const TensorMap ignored, evaluate_graph(graph, inputs, [&](const NodeVisit& visit) -> Expected<void> {
               const std::vector<std::string> slots = slot_names(*visit.node);
               for (std::size_t k = 0; k < slots.size(); ++k)
                 if (visit.inputs[k] != nullptr) tensors[slots[k]] = *visit.inputs[k];
               return {};
             }));
  const IsolatedNodes isolated = isolate_nodes(graph, nodes, types);
  TensorMap feeds;
  for (const auto& [name, whole] : isolated.inputs) feeds[name] = tensors.at(whole);
  OPDIFF_TRY(Backend* const backend, party.open());
  const Outcome outcome = run_once(*backend, isolated.graph, feeds, {.isolated = true});
  if (!outcome.ok()) return make_error("{}: {}: {}", party.spec, to_string(outcome.kind), outcome.reason);
  for (const int index : nodes) {
    const auto failure = outcome.node_failures.find(graph.nodes[static_cast<std::size_t>(index)].id);
    if (failure == outcome.node_failures.end()) continue;
    result.push_back({index, failure->second.second});
  }
  return result;
}

}  // namespace opdiff
