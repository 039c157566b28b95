// From "this backend's result is wrong" to culprits: which nodes, proven by substitution, and at which stage. A state
// machine over probes: it runs nothing and judges nothing itself (plan/probe.h does), so tests drive it with planted
// faults.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "locate/culprit.h"
#include "plan/probe.h"

namespace opdiff {

struct Probes {
  // The segment as one graph on the backend, fed from the reference chain; outputs against the reference chain's.
  std::function<Reading(const NodeSet&)> segment;
  // The same with every node in a graph of its own.
  std::function<Reading(const NodeSet&)> unfused;
  // The first against the second.
  std::function<Reading(const NodeSet&)> fused_against_unfused;
  // The whole model, cut; the model's outputs against the reference chain's.
  std::function<Reading(const Assignment&)> assembled;
  // One node alone, judged against the operator's own bounds. Fresh: inputs drawn anew like the real ones, by `draw`.
  std::function<NodeReading(int node, NodeInputs inputs, Executor executor, int draw)> alone;
  // The node run again and again on the reference's inputs: do the bits differ, and is a run among them wrong?
  std::function<bool(int node)> unsteady;
  // The node alone, written another way; nullopt when there is no other honest way.
  std::function<std::optional<NodeReading>(int node)> rewritten;
  // The segment with these passes switched off. Empty function: the backend has no such passes.
  std::function<Reading(const NodeSet&, const std::vector<std::string>& disabled)> without_passes;
  std::vector<std::string> passes;
  std::function<bool()> interrupted;
};

struct LocaliseInput {
  const Graph* graph = nullptr;
  std::string backend;                    // spec
  std::vector<const NodeOutcome*> alone;  // per node; nullptr: not run
  Reading whole;
  // So many nodes that are wrong alone, the worst first, are localised in full: passes, other ways to write them, proof
  // by substitution. Each costs dozens of runs, three of them of the whole model. Of the others their own bounds speak.
  int most_in_full = 20;
};

struct LocaliseResult {
  std::vector<Culprit> culprits;
  // Nodes alone that failed without values (an error, a crash), each on its own: not a wrong value, but not right.
  NodeSet failing_alone;
  NodeSet unconfirmed;      // `unlikely` alone, neither confirmed by substitution nor repeated on fresh inputs
  std::string explanation;  // why the whole model is off without a culprit
};

// Fresh draws, and on how many of them an `unlikely` verdict, or its outlier beyond `rounding`, must repeat to count as
// confirmed. Each healthy draw is implausible with odds of 1e-9 (docs/numerics.md, section 1); a first draw that was so
// by the structure of its values is not on resampled ones.
inline constexpr int kConfirmingDraws = 3, kConfirmations = 2;

LocaliseResult localise(const LocaliseInput& input, const Probes& probes);

}  // namespace opdiff
