#include "locate/substitution.h"

#include <algorithm>

namespace opdiff {
namespace {

Measurement measured(const Reading& reading) {
  return {reading.error(), reading.wrong || reading.outcome != OutcomeKind::ok, reading.reason};
}
Measurement measured(const NodeReading& reading) { return {reading.ratio, reading.wrong(), reading.reason}; }

class Substituter {
 public:
  Substituter(const LocaliseInput& input, const Probes& probes, const Culprit& culprit)
      : input_(input), probes_(probes), culprit_(culprit), alone_(culprit.indices.size() == 1) {}

  Substitution at_model_outputs(const std::vector<Culprit>& all, const NodeSet& failing) const {
    // Labels: 0 the rest, 1 the culprit, 2 what is known to be wrong besides, 3... the culprit's nodes one by one.
    std::vector<int> labels(input_.graph->nodes.size(), 0);
    for (const Culprit& other : all) {
      for (const int node : other.indices) labels[static_cast<std::size_t>(node)] = 2;
    }
    for (const int node : failing) labels[static_cast<std::size_t>(node)] = 2;
    for (const int node : culprit_.indices) labels[static_cast<std::size_t>(node)] = 1;
    const auto run = [&](Executor rest, Executor culprit) {
      return measured(probes_.assembled({labels, {rest, culprit, Executor::reference}}));
    };
    Substitution result;
    result.measured_at = "model outputs";
    result.unit = kNoiseFloorUnit;
    result.limit = kReadingLimit;
    result.necessary = run(Executor::backend, Executor::reference);
    result.sufficient = run(Executor::reference, Executor::backend);
    if (alone_) {
      result.placebo = run(Executor::backend, Executor::backend);
    } else {
      std::vector<int> apart = labels;
      std::vector<Executor> executors(3, Executor::backend);
      executors[2] = Executor::reference;
      for (const int node : culprit_.indices) {
        apart[static_cast<std::size_t>(node)] = static_cast<int>(executors.size());
        executors.push_back(Executor::backend);
      }
      result.placebo = measured(probes_.assembled({apart, executors}));
    }
    return conclude(std::move(result));
  }

  Substitution at_own_outputs() const {
    Substitution result;
    result.measured_at = fmt::format("outputs of {}", fmt::join(culprit_.nodes, ", "));
    if (alone_) {
      const int node = culprit_.indices.front();
      result.unit = kVerdictUnit;
      result.limit = 1;
      result.sufficient = measured(probes_.alone(node, NodeInputs::reference, Executor::backend, 0));
      result.placebo = measured(probes_.alone(node, NodeInputs::chained, Executor::backend, 0));
      result.necessary = measured(probes_.alone(node, NodeInputs::chained, Executor::reference, 0));
    } else {
      // The reference's own tensors are what the others are measured against: with them in the culprit's place, 0.
      result.unit = kNoiseFloorUnit;
      result.limit = kReadingLimit;
      result.sufficient = measured(probes_.segment(culprit_.indices));
      result.placebo = measured(probes_.unfused(culprit_.indices));
    }
    return conclude(std::move(result));
  }

 private:
  Substitution conclude(Substitution result) const {
    result.placebo_holds = alone_ ? result.placebo.wrong : !result.placebo.wrong;
    result.necessary_holds = !result.necessary.wrong;
    result.sufficient_holds = result.sufficient.wrong;
    return result;
  }

  const LocaliseInput& input_;
  const Probes& probes_;
  const Culprit& culprit_;
  const bool alone_;
};

}  // namespace

Substitution substitute(const LocaliseInput& input, const Probes& probes, const Culprit& culprit,
                        const std::vector<Culprit>& all, const NodeSet& failing) {
  const Substituter substituter(input, probes, culprit);
  const bool visible = input.whole.wrong || input.whole.outcome != OutcomeKind::ok;
  if (visible) {
    Substitution result = substituter.at_model_outputs(all, failing);
    if (result.proven()) return result;
  }
  return substituter.at_own_outputs();
}

std::vector<NodeSet> convex_parts(const Graph& graph, const std::set<int>& nodes) {
  std::vector<int> labels(graph.nodes.size(), 1);
  for (const int node : nodes) labels[static_cast<std::size_t>(node)] = 0;
  const Uses uses(graph);
  std::vector<NodeSet> parts;
  for (const NodeSet& segment : partition_into_convex_segments(graph, labels)) {
    if (label_of(graph, segment, labels) != 0) continue;
    for (NodeSet& part : connected_parts(uses, segment)) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace opdiff
