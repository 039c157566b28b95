#include "locate/localise.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "locate/passes.h"
#include "locate/substitution.h"

namespace opdiff {
namespace {

// A hang costs a whole time limit each probe, and a crash a restart with its imports.
int probe_limit_for(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::timeout: return 24;
    case OutcomeKind::crash:
    case OutcomeKind::out_of_memory: return 200;
    default: return 4000;
  }
}

bool quantises(const Graph& graph, const NodeSet& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [&](int index) {
    return graph.nodes[static_cast<std::size_t>(index)].op.find("uantize") != std::string::npos;
  });
}

class Localiser {
 public:
  Localiser(const LocaliseInput& input, const Probes& probes) : input_(input), probes_(probes) {}

  LocaliseResult run() {
    for (const int node : worst_first()) {
      if (stop()) break;
      blame_alone(node);
    }
    // A model that loads and is not off needs no search: cutting it would only look for what is not there.
    if (off(input_.whole) && !stop()) search_segments();
    for (const auto& [node, outlier] : suspects_) confirm(node, outlier);
    measure_substitutions();
    drop_unconfirmed();
    if (input_.whole.wrong && result_.culprits.empty() && result_.explanation.empty() && !stop()) {
      explain("no part of the model without the nodes that fail alone is wrong");
    }
    return std::move(result_);
  }

 private:
  static bool off(const Reading& reading) {
    return reading.wrong || (reading.outcome != OutcomeKind::ok && reading.outcome != OutcomeKind::unsupported);
  }
  bool stop() const { return probes_.interrupted && probes_.interrupted(); }
  int node_count() const { return static_cast<int>(input_.graph->nodes.size()); }
  const Node& node_at(int index) const { return input_.graph->nodes[static_cast<std::size_t>(index)]; }
  const NodeOutcome* alone(int index) const { return input_.alone[static_cast<std::size_t>(index)]; }

  Culprit culprit_of(NodeSet nodes) const {
    Culprit culprit;
    std::vector<std::string> ops;
    for (const int index : nodes) {
      culprit.nodes.push_back(node_at(index).id);
      ops.push_back(node_at(index).op);
    }
    culprit.op = fmt::format("{}", fmt::join(ops, "+"));
    culprit.backend = input_.backend;
    culprit.indices = std::move(nodes);
    return culprit;
  }

  // Among equals in the order of the model. What has no verdict fails: as bad as a defect.
  std::vector<int> worst_first() const {
    std::vector<int> nodes(input_.graph->nodes.size());
    std::iota(nodes.begin(), nodes.end(), 0);
    const auto rung = [&](int index) {
      const NodeOutcome* outcome = alone(index);
      return outcome == nullptr ? Rung::exact : outcome->ok() ? outcome->rung() : Rung::defect;
    };
    std::stable_sort(nodes.begin(), nodes.end(), [&](int a, int b) { return rung(a) > rung(b); });
    return nodes;
  }

  // The name of the output that is furthest down the ladder.
  static std::string worst_output(const NodeOutcome& outcome) {
    std::string worst;
    for (const auto& [name, verdict] : outcome.outputs)
      if (worst.empty() || verdict.rung > outcome.outputs.at(worst).rung) worst = name;
    return worst;
  }

  // Nodes that are wrong, or fail, on their own.
  void blame_alone(int index) {
    const NodeOutcome* outcome = alone(index);
    if (outcome == nullptr || outcome->outcome == OutcomeKind::unsupported) {
      excluded_.insert(index);
      return;
    }
    if (is_unproven_suspect(*outcome)) return blame_unproven(index, *outcome);
    if (outcome->ok() && outcome->rung() < Rung::unlikely && !outcome->repeats_differ) return;
    excluded_.insert(index);
    StageEvidence evidence;
    evidence.repeats_differ = outcome->repeats_differ;
    Culprit culprit = culprit_of({index});
    culprit.localised = in_full_++ < input_.most_in_full;
    std::string outlier;
    if (outcome->ok()) {
      const NodeReading reading = probes_.alone(index, NodeInputs::reference, Executor::backend, 0);
      culprit.rung = outcome->rung();
      culprit.evidence = reading.evidence;
      outlier = reading.outlier;
      evidence.only_shape_wrong = reading.wrong_shape;
      evidence.repeats_differ |= reading.repeats_differ || reading.wrong() != (outcome->rung() >= Rung::unlikely);
    } else {
      culprit.outcome = outcome->outcome;
      culprit.evidence = outcome->reason;
    }
    if (culprit.localised && !evidence.repeats_differ && !evidence.only_shape_wrong && outcome->ok()) {
      const std::optional<NodeReading> rewritten = probes_.rewritten(index);
      evidence.right_when_rewritten = rewritten.has_value() && !rewritten->wrong();
    }
    const bool process_died = !outcome->ok() && outcome->outcome != OutcomeKind::error;
    if (culprit.localised && !evidence.repeats_differ && !evidence.right_when_rewritten && !process_died) {
      blame_passes_for(&culprit, &evidence);
    }
    evidence.role = role_of(node_at(index), worst_output(*outcome));
    culprit.stage = stage_of(evidence);
    // A valid node that the framework refuses to compute is no wrong value; it is one when an optimisation made it
    // fail.
    if (culprit.outcome == OutcomeKind::error && !evidence.right_without_passes) {
      result_.failing_alone.push_back(index);
      return;
    }
    if (outcome->ok() && culprit.rung == Rung::unlikely && !outcome->repeats_differ) suspects_[index] = outlier;
    result_.culprits.push_back(std::move(culprit));
  }

  // A node that no meta-operator judges: the backends are all there is to compare. Two that differ honestly are told
  // from two of which one is wrong by what the difference does to the whole model: past the noise floor, or not.
  bool is_unproven_suspect(const NodeOutcome& outcome) const {
    const Verdict* verdict = outcome.worst();
    return input_.whole.wrong && outcome.ok() && verdict != nullptr && verdict->unproven &&
           outcome.rung() == Rung::exact && outcome.own_error != 0;
  }

  // Counts only once substitution has shown it at the model's outputs (drop_unconfirmed).
  void blame_unproven(int index, const NodeOutcome& outcome) {
    const Reading reading = probes_.segment({index});
    if (!reading.wrong) return;
    excluded_.insert(index);
    Culprit culprit = culprit_of({index});
    culprit.rung = Rung::unlikely;
    culprit.evidence = fmt::format(
        "unproven: differs by {:.3g} from the first backend that computes it; there is no meta-operator of ours that "
        "could say which of the two is right",
        outcome.own_error);
    culprit.stage = stage_of({});
    result_.culprits.push_back(std::move(culprit));
  }

  // The segment is wrong by its own floor, or fails: the smallest such segment.
  void search_segments() {
    std::set<int> remaining;
    for (int node = 0; node < node_count(); ++node) {
      if (excluded_.count(node) == 0) remaining.insert(node);
    }
    while (!remaining.empty() && !stop()) {
      const std::optional<NodeSet> guilty = next_guilty(remaining);
      if (!guilty) return;
      for (const int node : *guilty) remaining.erase(node);
    }
  }

  // Nodes to take out of the search: a culprit, or a part that cannot be blamed further.
  std::optional<NodeSet> next_guilty(const std::set<int>& remaining) {
    for (const NodeSet& part : convex_parts(*input_.graph, remaining)) {
      if (stop()) return std::nullopt;
      const Reading reading =
          part.size() == static_cast<std::size_t>(node_count()) ? input_.whole : probes_.segment(part);
      if (!off(reading)) continue;
      return minimise_part(part, reading);
    }
    return std::nullopt;
  }

  NodeSet minimise_part(const NodeSet& part, const Reading& reading) {
    const bool values = reading.outcome == OutcomeKind::ok;
    const bool again = off(probes_.segment(part));
    if (!again || reading.repeats_differ) {
      const std::size_t before = result_.culprits.size();
      blame_unsteady(part);
      if (!again || result_.culprits.size() > before) return part;
    }
    if (values && !reading.wrong_shape && part.size() > 1) {
      const Reading difference = probes_.fused_against_unfused(part);
      if (difference.outcome == OutcomeKind::ok && !difference.wrong) {
        explain(
            "the backend's own nodes, one by one, are as far from the reference as its whole model, and none is "
            "wrong alone: the sum of what the table shows per node");
        return part;
      }
    }
    const MinimiseResult smallest = minimise_segment(
        *input_.graph, part,
        [&](const NodeSet& nodes) {
          const Reading answer = probes_.segment(nodes);
          return values ? answer.outcome == OutcomeKind::ok && answer.wrong : answer.outcome == reading.outcome;
        },
        probe_limit_for(reading.outcome));
    if (stop()) return part;
    switch (smallest.status) {
      case MinimiseStatus::not_shown:
      case MinimiseStatus::not_deterministic: blame_unsteady(part); return part;
      case MinimiseStatus::gave_up:
      case MinimiseStatus::found: return blame_segment(smallest.segment, smallest.status == MinimiseStatus::gave_up);
    }
    return part;
  }

  // Nodes that are wrong on some runs only.
  void blame_unsteady(const NodeSet& part) {
    bool found = false;
    for (const int node : part) {
      if (stop() || !probes_.unsteady(node)) continue;
      Culprit culprit = culprit_of({node});
      culprit.stage = Stage::non_determinism;
      culprit.evidence = "runs of this node on the same bits give different bits, some of them wrong";
      result_.culprits.push_back(std::move(culprit));
      found = true;
    }
    if (!found) explain("runs of the model differ, some of them are wrong, and no node alone is so");
  }

  NodeSet blame_segment(const NodeSet& segment, bool gave_up) {
    const Reading reading = probes_.segment(segment);
    const Reading unfused = segment.size() > 1 ? probes_.unfused(segment) : reading;
    if (off(unfused)) {
      explain(
          fmt::format("the smallest wrong segment ({}) is as wrong with its nodes apart, and none is wrong alone by "
                      "its operator's bounds",
                      names(segment)));
      return segment;
    }
    Culprit culprit = culprit_of(segment);
    culprit.outcome = reading.outcome;
    culprit.evidence = reading.outcome == OutcomeKind::ok
                           ? fmt::format("{} at {}, {:.3g} times the noise floor with the nodes apart",
                                         distance(reading), reading.worst_output, unfused.error())
                           : reading.reason;
    if (gave_up) culprit.evidence += " (search ended at its limit of probes: a smaller segment may exist)";
    StageEvidence evidence;
    evidence.alone_clean = true;
    evidence.only_shape_wrong = reading.wrong_shape;
    evidence.quantises = quantises(*input_.graph, segment);
    blame_passes_for(&culprit, &evidence);
    culprit.stage = stage_of(evidence);
    result_.culprits.push_back(std::move(culprit));
    return segment;
  }

  static std::string distance(const Reading& reading) {
    if (reading.wrong_shape) return reading.reason;
    if (reading.non_finite_differs) return "other values are infinite or NaN";
    if (std::isinf(reading.error())) return "off where the noise floor is zero";
    return fmt::format("{:.3g} times the noise floor", reading.error());
  }

  void blame_passes_for(Culprit* culprit, StageEvidence* evidence) {
    if (!probes_.without_passes || probes_.passes.empty() || stop()) return;
    const PassBlame blame = blame_passes(probes_.passes, [&](const std::vector<std::string>& disabled) {
      const Reading reading = probes_.without_passes(culprit->indices, disabled);
      return reading.outcome == OutcomeKind::ok && !reading.wrong;
    });
    if (stop()) return;  // whatever was tried last failed because of that
    culprit->pass = blame.text();
    evidence->right_without_passes = !culprit->pass.empty();
  }

  // `unlikely` is a suspicion. It is confirmed when two of three fresh draws of the node's inputs show the same
  // verdict, or worse, or the same element as their worst (a fault of ten deviations in one element may err as little
  // as some honest order of summation, but always there); or by substitution at the model's outputs
  // (measure_substitutions).
  void confirm(int node, const std::string& outlier) {
    int repeats = 0;
    for (int draw = 1; draw <= kConfirmingDraws && repeats < kConfirmations && !stop(); ++draw) {
      const NodeReading reading = probes_.alone(node, NodeInputs::fresh, Executor::backend, draw);
      repeats += reading.wrong() || (!outlier.empty() && reading.outlier == outlier);
    }
    if (repeats == kConfirmations) confirmed_.insert(node);
  }

  void measure_substitutions() {
    for (Culprit& culprit : result_.culprits) {
      if (stop()) return;
      if (!culprit.localised) continue;
      culprit.substitution = substitute(input_, probes_, culprit, result_.culprits, result_.failing_alone);
    }
  }

  void drop_unconfirmed() {
    std::vector<Culprit> kept;
    for (Culprit& culprit : result_.culprits) {
      const bool suspect =
          culprit.rung == Rung::unlikely && culprit.indices.size() == 1 && culprit.stage != Stage::non_determinism;
      const Substitution& substitution = culprit.substitution;
      const bool at_outputs = substitution.proven() && substitution.unit == kNoiseFloorUnit;
      if (suspect && confirmed_.count(culprit.indices.front()) == 0 && !at_outputs) {
        result_.unconfirmed.push_back(culprit.indices.front());
      } else {
        kept.push_back(std::move(culprit));
      }
    }
    // Worst first, of these what was localised; among equals in the order of the model.
    std::stable_sort(kept.begin(), kept.end(), [](const Culprit& a, const Culprit& b) {
      return std::pair(a.rung, a.localised) > std::pair(b.rung, b.localised);
    });
    result_.culprits = std::move(kept);
  }

  void explain(std::string text) {
    if (!result_.explanation.empty()) result_.explanation += "; ";
    result_.explanation += text;
  }
  std::string names(const NodeSet& nodes) const { return fmt::format("{}", fmt::join(culprit_of(nodes).nodes, ", ")); }

  const LocaliseInput& input_;
  const Probes& probes_;
  LocaliseResult result_;
  int in_full_ = 0;                      // nodes that were, or would have been, localised in full
  std::set<int> excluded_;               // not part of the search for segments
  std::map<int, std::string> suspects_;  // node to its outlier (NodeReading)
  std::set<int> confirmed_;
};

}  // namespace

LocaliseResult localise(const LocaliseInput& input, const Probes& probes) { return Localiser(input, probes).run(); }

}  // namespace opdiff
