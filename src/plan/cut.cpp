#include "plan/cut.h"

#include <utility>

namespace opdiff {
namespace {

std::string names_of(const Graph& graph, const NodeSet& nodes) {
  std::vector<std::string> names;
  for (const int index : nodes) names.push_back(graph.nodes[static_cast<std::size_t>(index)].id);
  if (names.size() > 4) {
    return fmt::format("{}, ..., {} ({} nodes)", names.front(), names.back(), names.size());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Outcome run_cut(const Graph& graph, const TensorMap& inputs, const std::vector<CutPart>& parts, const TypeMap& types,
                const std::function<void(const CutPart&, const TensorMap& outputs)>& visit) {
  std::vector<Graph> segments;
  std::map<std::string, std::size_t> last_use;
  TypeMap actual = types;
  for (std::size_t place = 0; place < parts.size(); ++place) {
    segments.push_back(extract_subgraph(graph, parts[place].nodes, types));
    for (const ValueInfo& input : segments.back().inputs) last_use[input.name] = place;
  }
  for (const ValueInfo& output : graph.outputs) last_use[output.name] = parts.size();

  TensorMap alive = inputs;
  for (std::size_t place = 0; place < parts.size(); ++place) {
    const CutPart& part = parts[place];
    TensorMap part_inputs;
    bool as_declared = true;
    for (const ValueInfo& input : segments[place].inputs) {
      const auto found = alive.find(input.name);
      if (found == alive.end()) {
        return Outcome::failure(OutcomeKind::error, fmt::format("nodes {}: nothing gives the tensor '{}'",
                                                                names_of(graph, part.nodes), input.name));
      }
      part_inputs[input.name] = found->second;
      const TensorType type = type_of(found->second);
      TensorType& known = actual[input.name];
      as_declared = as_declared && known.dtype == type.dtype && known.shape == type.shape;
      known = type;
    }
    // A wrong shape further up is passed on as it is, not refused at the border.
    Outcome outcome = as_declared ? part.run(segments[place], part_inputs)
                                  : part.run(extract_subgraph(graph, part.nodes, actual), part_inputs);
    if (!outcome.ok()) {
      outcome.reason = fmt::format("nodes {}: {}", names_of(graph, part.nodes), outcome.reason);
      return outcome;
    }
    if (visit) visit(part, outcome.outputs);
    for (auto& [name, tensor] : outcome.outputs) {
      if (last_use.count(name) > 0) alive[name] = std::move(tensor);
    }
    for (auto tensor = alive.begin(); tensor != alive.end();) {
      const auto use = last_use.find(tensor->first);
      tensor = use == last_use.end() || use->second <= place ? alive.erase(tensor) : std::next(tensor);
    }
  }
  Outcome result;
  const Uses uses(graph);
  for (const ValueInfo& output : graph.outputs) {
    if (const auto found = alive.find(output.name); found != alive.end()) {
      result.outputs[output.name] = found->second;
    } else if (const auto initialiser = graph.initialisers.find(output.name); initialiser != graph.initialisers.end()) {
      result.outputs[output.name] = initialiser->second;
    } else if (const int maker = uses.producer(output.name);
               maker >= 0 && constant_value(graph.nodes[static_cast<std::size_t>(maker)])) {
      result.outputs[output.name] = *constant_value(graph.nodes[static_cast<std::size_t>(maker)]);
    } else {
      return Outcome::failure(OutcomeKind::error, fmt::format("nothing gives the output '{}'", output.name));
    }
  }
  return result;
}

std::vector<CutPart> nodes_apart(const Graph& graph, const SegmentRunner& run) {
  std::vector<CutPart> parts;
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    if (graph.nodes[index].op != "Constant") parts.push_back({{static_cast<int>(index)}, run});
  }
  return parts;
}

SegmentRunner backend_runner(Backend& backend) {
  return [&backend](const Graph& segment, const TensorMap& inputs) { return run_once(backend, segment, inputs); };
}

SegmentRunner reference_runner(ForeignEvaluator foreign) {
  return [foreign = std::move(foreign)](const Graph& segment, const TensorMap& inputs) {
    Expected<TensorMap> outputs = evaluate_graph(segment, inputs, {}, foreign);
    if (!outputs) return Outcome::failure(OutcomeKind::error, outputs.error().message);
    Outcome outcome;
    outcome.outputs = *std::move(outputs);
    return outcome;
  };
}

ForeignEvaluator foreign_evaluator(const Graph& graph, std::vector<BackendSource> backends) {
  std::map<std::string, int> places;
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    places[graph.nodes[index].id] = static_cast<int>(index);
  }
  return [&graph, backends = std::move(backends), places = std::move(places)](
             const Node& node, std::span<const Tensor* const> inputs) -> Expected<std::vector<Tensor>> {
    NodeTensors tensors;
    tensors.index = places.at(node.id);
    tensors.inputs.assign(inputs.begin(), inputs.end());
    const NodeBatch batch = batch_of(graph, {tensors});
    std::string reasons;
    for (const BackendSource& source : backends) {
      OPDIFF_TRY(Backend* const backend, source());
      Outcome outcome = run_once(*backend, batch.isolated.graph, batch.feeds, {.isolated = true});
      bool complete = outcome.ok() && outcome.node_failures.empty();
      std::vector<Tensor> outputs;
      for (std::size_t slot = 0; slot < node.outputs.size(); ++slot) {
        const std::string name = batch.output_name(0, slot);
        const auto found = outcome.outputs.find(name);
        complete = complete && (name.empty() || found != outcome.outputs.end());
        outputs.push_back(found == outcome.outputs.end() ? Tensor() : found->second);
      }
      if (complete) return outputs;
      const std::string reason =
          outcome.node_failures.empty() ? outcome.reason : outcome.node_failures.begin()->second.second;
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", backend->info().spec, reason);
    }
    return make_error("node '{}' ({}{}{}): no meta-operator of ours and no backend computes it ({})", node.id,
                      node.domain, node.domain.empty() ? "" : ".", node.op, reasons);
  };
}

}  // namespace opdiff
