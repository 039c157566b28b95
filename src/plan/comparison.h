// What a comparison of a model over several backends has found so far: plain data, written by plan/isolated.h and
// plan/whole_model.h, read by locate/ and report/. Nothing in it depends on how many workers or threads were used.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "judge/judge.h"
#include "plan/known.h"
#include "workers/backend.h"

namespace opdiff {

// One node on one backend, alone, on the reference chain's tensors.
struct NodeOutcome {
  OutcomeKind outcome = OutcomeKind::ok;
  std::string reason;                      // why not ok
  std::map<std::string, Verdict> outputs;  // by tensor name
  double own_error = 0;                    // largest |backend(reference inputs) - centre|
  // largest |backend(its own chained inputs) - reference|, and what of it the node did not add itself:
  // largest |backend(chained inputs) - backend(reference inputs)|. Only when the whole model is suspect.
  std::optional<double> total_error;
  std::optional<double> inherited_error;
  std::optional<double> wall_ms;
  std::optional<std::int64_t> peak_bytes;
  bool repeats_differ = false;
  std::optional<KnownDivergence> known;  // the accepted divergence that explains all that is wrong here

  bool ok() const { return outcome == OutcomeKind::ok; }
  // The verdict of the worst output; nullptr when nothing was judged.
  const Verdict* worst() const;
  Rung rung() const;  // of worst(); exact when nothing was judged
};

struct NodeResult {
  std::string id;
  std::string op;
  bool has_reference = true;
  bool backward = false;                        // a node of --mode gradient or step that computes a gradient
  std::map<std::string, NodeOutcome> backends;  // by spec; absent where the run ended before
};

// How far a run's outputs are from the reference chain's, in multiples of the noise floor.
struct Reading {
  OutcomeKind outcome = OutcomeKind::ok;
  std::string reason;
  bool wrong = false;  // suspect by the floor, a wrong shape or dtype, or a failed run
  bool wrong_shape = false;
  bool non_finite_differs = false;
  bool repeats_differ = false;  // two runs gave different bits
  double rms = 0, max = 0;      // the worst output's
  std::string worst_output;

  // One number: multiples of the noise floor on the scale where kReadingLimit is the limit of the root mean square
  // (3) and of the largest element (10) alike; infinite when there is no number.
  double error() const;
};
inline constexpr double kReadingLimit = 3;  // docs/numerics.md, section 6

// A classifier's answers: rows of the last axis of its one output.
struct ClassifierResult {
  std::int64_t rows = 0;
  std::int64_t flips = 0;               // rows whose largest element is another than the reference's
  std::int64_t flips_inside_noise = 0;  // ... whose margin is within the noise at both elements
  // Rows whose largest element is at the place that the inputs' own labels say, where they have labels.
  std::optional<std::int64_t> right;
  std::optional<std::int64_t> reference_right;
  double smallest_margin = 0;  // reference's largest minus second largest, the smallest over rows
};

// Elements of the outputs that break the user's own --rtol and --atol.
struct ContractResult {
  std::int64_t elements = 0;
  std::int64_t broken = 0;
};

struct WholeModelResult {
  Reading reading;
  std::map<std::string, FloorComparison> outputs;
  std::optional<ClassifierResult> classifier;
  std::optional<ContractResult> contract;
  std::optional<double> wall_ms;
  // Only when suspect: the backend's own nodes one by one, each on the backend's own tensors.
  std::optional<Reading> chained;
  // Why a suspect model has no culprit, for a person; empty otherwise.
  std::string explanation;
};

// A backend that crashed, hung or ran out of memory, at any moment of the run. It has been started again since.
struct BackendDeath {
  std::string backend;  // spec
  OutcomeKind kind = OutcomeKind::crash;
  std::string reason;
};
bool is_death(OutcomeKind kind);

struct Comparison {
  std::vector<BackendInfo> backends;  // in the order asked for
  std::vector<NodeResult> nodes;      // in topological order
  // By spec; an assignment of operators to backends has an entry of its own, "onnxruntime with Conv=onednn".
  std::map<std::string, WholeModelResult> whole_model;
  std::vector<std::string> unproven;  // ids of nodes without a reference
  std::vector<BackendDeath> deaths;   // in the order in which they happened
  // Why the run ended early: a node without a reference whose backends all died of it. Nodes before it are judged.
  std::string stopped;
  bool interrupted = false;
};

}  // namespace opdiff
