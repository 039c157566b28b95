#include "plan/probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "plan/rewrite.h"
#include "plan/whole_model.h"

namespace opdiff {
namespace {

// How often a node is repeated when non-determinism is looked for: a fault that shows on half of the runs is missed
// with odds of 1 in 512.
constexpr int kRepeats = 10;
// Two of three honest draws would have the same one of so many elements as their worst with odds below 1e-3.
constexpr std::int64_t kManyElements = 64;

Reading failed_reading(OutcomeKind outcome, std::string reason) {
  Reading reading;
  reading.outcome = outcome;
  reading.reason = std::move(reason);
  return reading;
}

ValueInfo named(const std::string& name) {
  ValueInfo info;
  info.name = name;
  return info;
}

double past_limits(const Verdict& verdict) {
  double ratio = 0;
  if (verdict.z_rms_limit > 0) ratio = std::max(ratio, verdict.z_rms / verdict.z_rms_limit);
  if (verdict.z_max_limit > 0) ratio = std::max(ratio, verdict.z_max / verdict.z_max_limit);
  if (verdict.rung == Rung::defect) ratio = std::max(ratio, verdict.excess);
  // Limits also hold for every slice of a tensor, so a verdict can fail while these whole-tensor figures do not.
  return verdict.suspicious() ? std::max(ratio, 1.0) : std::min(ratio, 1.0);
}

std::string describe(const std::string& output, const Verdict& verdict) {
  if (!verdict.note.empty()) return fmt::format("{}: {}", output, verdict.note);
  const WorstElement& worst = verdict.worst;
  std::string text =
      fmt::format("{}{}: got {:.9g}, right {:.9g}", output, to_string(worst.coordinates), worst.got, worst.centre);
  if (verdict.rung == Rung::defect) {
    text += fmt::format("; off by {:.3g}, any arithmetic allowed here is within {:.3g}",
                        std::abs(worst.got - worst.centre), worst.radius);
  } else if (verdict.rung == Rung::unlikely) {
    text += fmt::format(
        "; {:.3g} deviations root mean square (limit {:.3g}), largest {:.3g} (limit {:.3g}), odds below {:.0e}",
        verdict.z_rms, verdict.z_rms_limit, verdict.z_max, verdict.z_max_limit, std::max(verdict.odds, 1e-300));
  }
  return text;
}

}  // namespace

BackendProbe::BackendProbe(const ModelUnderTest& model, Backend& backend, VariantOpener open_variant)
    : model_(model), backend_(backend), open_variant_(std::move(open_variant)) {}

Expected<CapturedCase> BackendProbe::case_of(const NodeSet& nodes) {
  // Names first, without types: those are complete only after the chain was walked.
  const Graph untyped = extract_subgraph(model_.graph, nodes, {});
  std::set<std::string> names;
  for (const ValueInfo& input : untyped.inputs) names.insert(input.name);
  for (const ValueInfo& output : untyped.outputs) names.insert(output.name);
  OPDIFF_TRY(const TensorMap tensors, model_.chain.tensors(names));
  CapturedCase result;
  result.graph = extract_subgraph(model_.graph, nodes, model_.chain.types());
  for (const ValueInfo& input : untyped.inputs) result.inputs[input.name] = tensors.at(input.name);
  for (const ValueInfo& output : untyped.outputs) result.reference[output.name] = tensors.at(output.name);
  return result;
}

FloorSource BackendProbe::floor_of(const NodeSet& nodes, const CapturedCase& segment) {
  if (nodes.size() == model_.graph.nodes.size()) return model_.floor;
  return [this, nodes, &segment]() -> Expected<const Floor*> {
    const auto known = floors_.find(nodes);
    if (known != floors_.end()) return &known->second;
    OPDIFF_TRY(Floor floor,
               noise_floor(segment.graph, segment.inputs, kNoiseRuns, model_.options.seed, model_.chain.foreign()));
    return &(floors_[nodes] = std::move(floor));
  };
}

Reading BackendProbe::segment_on(Backend& backend, const NodeSet& nodes) {
  const Expected<CapturedCase> segment = case_of(nodes);
  if (!segment) return failed_reading(OutcomeKind::error, segment.error().message);
  return read_outputs(run_once(backend, segment->graph, segment->inputs), segment->reference,
                      floor_of(nodes, *segment));
}

Expected<CapturedCase> BackendProbe::capture(const NodeSet& nodes) {
  OPDIFF_TRY(CapturedCase result, case_of(nodes));
  result.got = run_once(backend_, result.graph, result.inputs).outputs;
  return result;
}

Reading BackendProbe::segment(const NodeSet& nodes) { return segment_on(backend_, nodes); }

Outcome BackendProbe::run_unfused(const CapturedCase& segment) {
  return run_cut(segment.graph, segment.inputs, nodes_apart(segment.graph, backend_runner(backend_)),
                 model_.chain.types());
}

Reading BackendProbe::unfused(const NodeSet& nodes) {
  const Expected<CapturedCase> segment = case_of(nodes);
  if (!segment) return failed_reading(OutcomeKind::error, segment.error().message);
  return read_outputs(run_unfused(*segment), segment->reference, floor_of(nodes, *segment));
}

Reading BackendProbe::fused_against_unfused(const NodeSet& nodes) {
  const Expected<CapturedCase> segment = case_of(nodes);
  if (!segment) return failed_reading(OutcomeKind::error, segment.error().message);
  const Outcome unfused = run_unfused(*segment);
  if (!unfused.ok()) return failed_reading(unfused.kind, unfused.reason);
  return read_outputs(run_once(backend_, segment->graph, segment->inputs), unfused.outputs, floor_of(nodes, *segment));
}

Reading BackendProbe::assembled(const Assignment& assignment) {
  // Completes the types.
  if (const auto walked = model_.chain.tensors({}); !walked) {
    return failed_reading(OutcomeKind::error, walked.error().message);
  }
  std::vector<CutPart> parts;
  for (NodeSet& nodes : partition_into_convex_segments(model_.graph, assignment.labels)) {
    const int label = label_of(model_.graph, nodes, assignment.labels);
    const bool reference = assignment.executors[static_cast<std::size_t>(label)] == Executor::reference;
    parts.push_back(
        {std::move(nodes), reference ? reference_runner(model_.chain.foreign()) : backend_runner(backend_)});
  }
  const Outcome outcome = run_cut(model_.graph, model_.inputs, parts, model_.chain.types());
  return read_outputs(outcome, model_.reference, model_.floor);
}

Expected<std::vector<std::optional<Tensor>>> BackendProbe::inputs_of(int index, NodeInputs kind, int draw) {
  const Node& node = model_.graph.nodes[static_cast<std::size_t>(index)];
  const std::vector<std::string> used = used_names(node);
  const std::set<std::string> names(used.begin(), used.end());
  OPDIFF_TRY(TensorMap tensors, model_.chain.tensors(names));
  if (kind == NodeInputs::chained) {
    const Uses uses(model_.graph);
    std::set<int> before_node;
    std::vector<int> todo = {index};
    while (!todo.empty()) {
      const int node_index = todo.back();
      todo.pop_back();
      for (const int producer : uses.predecessors(node_index)) {
        if (before_node.insert(producer).second) todo.push_back(producer);
      }
    }
    const NodeSet ancestors(before_node.begin(), before_node.end());
    // The node's ancestors as a graph whose outputs are what the node takes.
    Graph before = extract_subgraph(model_.graph, ancestors, model_.chain.types());
    const std::vector<CutPart> parts = nodes_apart(before, backend_runner(backend_));
    before.outputs.clear();
    for (const std::string& name : names) {
      const int producer = uses.producer(name);
      if (producer >= 0 && model_.graph.nodes[static_cast<std::size_t>(producer)].op != "Constant") {
        before.outputs.push_back(named(name));
      }
    }
    Outcome outcome = run_cut(before, model_.inputs, parts, model_.chain.types());
    if (!outcome.ok()) return make_error("{}", outcome.reason);
    for (auto& [name, tensor] : outcome.outputs) tensors[name] = std::move(tensor);
  }
  Rng rng(model_.options.seed, "fresh inputs of " + node.id, static_cast<std::uint64_t>(draw));
  std::vector<std::optional<Tensor>> result;
  TensorMap drawn;  // a tensor taken twice stays one tensor
  for (const std::string& input : slot_names(node)) {
    if (input.empty()) {
      result.emplace_back();
    } else if (kind == NodeInputs::fresh && model_.graph.initialisers.count(input) == 0) {
      if (drawn.count(input) == 0) drawn[input] = drawn_like(tensors.at(input), rng);
      result.emplace_back(drawn.at(input));
    } else {
      result.emplace_back(tensors.at(input));
    }
  }
  return result;
}

NodeReading BackendProbe::judged(const Node& node, int opset, const std::vector<std::optional<Tensor>>& inputs,
                                 const std::vector<std::optional<Tensor>>& got) const {
  NodeReading reading;
  const std::vector<const Tensor*> input_pointers = pointers_to(inputs);
  const std::vector<Verdict> verdicts = judge_node(node, opset, input_pointers, pointers_to(got));
  const Expected<std::vector<Tensor>> right =
      has_reference(node, opset) ? evaluate_node(node, opset, input_pointers) : make_error("no reference");
  for (std::size_t slot = 0; slot < node.outputs.size() && slot < verdicts.size(); ++slot) {
    if (node.outputs[slot].empty()) continue;
    const Verdict& verdict = verdicts[slot];
    if (verdict.rung > reading.rung || reading.evidence.empty()) {
      reading.evidence = describe(node.outputs[slot], verdict);
      const bool one_of_many = verdict.rung > Rung::rounding && verdict.elements >= kManyElements;
      reading.outlier = one_of_many ? fmt::format("{}[{}]", node.outputs[slot], verdict.worst.index) : "";
    }
    reading.rung = std::max(reading.rung, verdict.rung);
    reading.ratio = std::max(reading.ratio, past_limits(verdict));
    if (right && got[slot] && got[slot]->shape() != (*right)[slot].shape()) {
      reading.wrong_shape = true;
      reading.ratio = std::numeric_limits<double>::infinity();
    }
  }
  return reading;
}

NodeReading BackendProbe::alone_on(Backend& backend, int index, const std::vector<std::optional<Tensor>>& inputs) {
  const Node& node = model_.graph.nodes[static_cast<std::size_t>(index)];
  const NodeBatch batch = batch_of(model_.graph, {{index, pointers_to(inputs), {}}});
  // Two runs of one prepared graph: what is left over from the first may show in the second.
  Outcome outcomes[2];
  int handle = 0;
  outcomes[0] = backend.prepare(batch.isolated.graph, {.isolated = true}, &handle);
  if (outcomes[0].ok()) {
    for (Outcome& outcome : outcomes) outcome = backend.run(handle, batch.feeds);
    backend.release(handle);
  }
  NodeReading reading;
  std::vector<std::optional<Tensor>> got[2];
  for (int run = 0; run < 2; ++run) {
    const Outcome& outcome = outcomes[run];
    const auto failure = outcome.node_failures.find(node.id);
    if (!outcome.ok() || failure != outcome.node_failures.end()) {
      reading.outcome = outcome.ok() ? failure->second.first : outcome.kind;
      reading.reason = outcome.ok() ? failure->second.second : outcome.reason;
      reading.evidence = reading.reason;
      reading.ratio = std::numeric_limits<double>::infinity();
      return reading;
    }
    for (std::size_t slot = 0; slot < node.outputs.size(); ++slot) {
      const auto found = outcome.outputs.find(batch.output_name(0, slot));
      got[run].push_back(found == outcome.outputs.end() ? std::nullopt : std::optional<Tensor>(found->second));
    }
  }
  const int opset = model_.graph.opset(node.domain);
  reading = judged(node, opset, inputs, got[0]);
  bool differ = false;
  for (std::size_t slot = 0; slot < got[0].size(); ++slot) {
    const auto& a = got[0][slot];
    const auto& b = got[1][slot];
    differ |= a && b && (a->shape() != b->shape() || a->dtype() != b->dtype() || !a->bit_equal(*b));
  }
  if (differ) {
    NodeReading again = judged(node, opset, inputs, got[1]);
    if (again.rung > reading.rung) reading = std::move(again);
    reading.repeats_differ = true;
  }
  return reading;
}

NodeReading BackendProbe::alone(int index, NodeInputs kind, Executor executor, int draw) {
  const Expected<std::vector<std::optional<Tensor>>> inputs = inputs_of(index, kind, draw);
  NodeReading failed;
  failed.outcome = OutcomeKind::error;
  failed.ratio = std::numeric_limits<double>::infinity();
  if (!inputs) {
    failed.reason = inputs.error().message;
    return failed;
  }
  if (executor == Executor::backend) return alone_on(backend_, index, *inputs);
  const Node& node = model_.graph.nodes[static_cast<std::size_t>(index)];
  const int opset = model_.graph.opset(node.domain);
  const Expected<std::vector<Tensor>> outputs = evaluate_node(node, opset, pointers_to(*inputs));
  if (!outputs) {
    failed.reason = outputs.error().message;
    return failed;
  }
  return judged(node, opset, *inputs, {outputs->begin(), outputs->end()});
}

bool BackendProbe::unsteady(int index) {
  const Expected<std::vector<std::optional<Tensor>>> inputs = inputs_of(index, NodeInputs::reference, 0);
  if (!inputs) return false;
  bool right = false, wrong = false, differ = false;
  for (int run = 0; run < kRepeats / 2; ++run) {  // each reading is two runs
    const NodeReading reading = alone_on(backend_, index, *inputs);
    (reading.wrong() ? wrong : right) = true;
    differ |= reading.repeats_differ;
  }
  return wrong && (right || differ);
}

std::optional<NodeReading> BackendProbe::rewritten(int index) {
  if (!backend_.info().importing) return std::nullopt;  // what a mapping backend reads are our own names and numbers
  const Node& original = model_.graph.nodes[static_cast<std::size_t>(index)];
  const int opset = model_.graph.opset(original.domain);
  const Expected<std::vector<std::optional<Tensor>>> inputs = inputs_of(index, NodeInputs::reference, 0);
  if (!inputs) return std::nullopt;
  const std::optional<RewrittenNode> rewritten = rewrite_node(original, opset, pointers_to(*inputs));
  if (!rewritten) return std::nullopt;
  Graph graph;
  graph.name = model_.graph.name;
  graph.ir_version = model_.graph.ir_version;
  graph.opsets = model_.graph.opsets;
  graph.opsets[""] = rewritten->opset;
  graph.nodes = {rewritten->node};
  TypeMap types;
  TensorMap feeds;
  for (std::size_t slot = 0; slot < rewritten->inputs.size(); ++slot) {
    const std::string& name = rewritten->node.inputs[slot];
    if (name.empty() || !rewritten->inputs[slot]) continue;
    // What was an initialiser, or is new, stays one.
    const bool constant =
        slot >= original.inputs.size() || original.inputs[slot] != name || model_.graph.initialisers.count(name) > 0;
    (constant ? graph.initialisers : feeds)[name] = *rewritten->inputs[slot];
    types[name] = type_of(*rewritten->inputs[slot]);
  }
  for (const auto& [name, tensor] : feeds) {
    ValueInfo info = named(name);
    info.dtype = tensor.dtype();
    info.shape.emplace();
    for (const std::int64_t size : tensor.shape()) info.shape->push_back({size, ""});
    graph.inputs.push_back(std::move(info));
  }
  const TypeMap& known = model_.chain.types();
  for (const std::string& name : rewritten->node.outputs) {
    if (name.empty()) continue;
    ValueInfo info = named(name);
    if (const auto type = known.find(name); type != known.end()) info.dtype = type->second.dtype;
    graph.outputs.push_back(std::move(info));
  }
  const Outcome outcome = run_once(backend_, graph, feeds, {.isolated = true});
  if (!outcome.ok() || !outcome.node_failures.empty()) return std::nullopt;
  std::vector<std::optional<Tensor>> got;
  for (const std::string& name : original.outputs) {
    const auto found = outcome.outputs.find(name);
    got.push_back(found == outcome.outputs.end() ? std::nullopt : std::optional<Tensor>(found->second));
  }
  return judged(original, opset, *inputs, got);
}

Reading BackendProbe::without_passes(const NodeSet& nodes, const std::vector<std::string>& disabled) {
  const Expected<std::unique_ptr<Backend>> variant = open_variant_(disabled);
  if (!variant) return failed_reading(OutcomeKind::error, variant.error().message);
  if (nodes.size() > 1) return segment_on(**variant, nodes);
  // A single node has bounds of its own, sharper than any floor.
  const Expected<std::vector<std::optional<Tensor>>> inputs = inputs_of(nodes.front(), NodeInputs::reference, 0);
  if (!inputs) return failed_reading(OutcomeKind::error, inputs.error().message);
  const NodeReading reading = alone_on(**variant, nodes.front(), *inputs);
  Reading result = failed_reading(reading.outcome, reading.reason);
  result.wrong = reading.wrong();
  return result;
}

Tensor drawn_like(const Tensor& tensor, Rng& rng) {
  if (!is_float(tensor.dtype()) || tensor.size() == 0) return tensor;
  std::vector<double> values(static_cast<std::size_t>(tensor.size()));
  for (double& value : values) {
    value = tensor.at(rng.integer(0, tensor.size() - 1)) * (1 + rng.uniform(-0x1p-8, 0x1p-8));
  }
  return Tensor::from_doubles(tensor.dtype(), tensor.shape(), values);
}

}  // namespace opdiff
