// The questions that localisation asks about one backend: is this segment wrong, is it wrong with its nodes apart, is
// the model wrong when these nodes are somebody else's, is this node wrong alone? Each answer is a fresh run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "plan/chain.h"
#include "plan/comparison.h"
#include "plan/cut.h"
#include "plan/options.h"
#include "plan/reading.h"

namespace opdiff {

enum class Executor { backend, reference };
// Who computes what: nodes with one label stay together as far as convexity allows; each label has its executor.
struct Assignment {
  std::vector<int> labels;          // per node
  std::vector<Executor> executors;  // per label
};

enum class NodeInputs { reference, chained, fresh };

// One node judged on exact inputs.
struct NodeReading {
  OutcomeKind outcome = OutcomeKind::ok;
  std::string reason;
  Rung rung = Rung::exact;
  bool wrong_shape = false;
  bool repeats_differ = false;
  double ratio = 0;      // how far past the verdict's limits: 1 is just allowed; infinite without a value
  std::string evidence;  // one line about the worst element
  // The worst element as OUTPUT[INDEX], when it is beyond the `rounding` rung and one of many: a healthy kernel's worst
  // is somewhere else on other values.
  std::string outlier;

  bool wrong() const { return outcome != OutcomeKind::ok || rung >= Rung::unlikely; }
};

// Opens the same backend with passes switched off on top of its spec.
using VariantOpener = std::function<Expected<std::unique_ptr<Backend>>(const std::vector<std::string>& disabled)>;

// The model under comparison, its chain and its noise floors; shared by the probes of all backends.
struct ModelUnderTest {
  const Graph& graph;
  const TensorMap& inputs;
  ReferenceChain& chain;
  const TensorMap& reference;  // the graph's outputs
  FloorSource floor;           // of the graph's outputs
  const CompareOptions& options;
};

// A segment as a case (docs/formats/case.md), with what the reference and the backend make of it.
struct CapturedCase {
  Graph graph;
  TensorMap inputs;
  TensorMap reference;
  TensorMap got;  // empty when the backend fails
};

class BackendProbe {
 public:
  BackendProbe(const ModelUnderTest& model, Backend& backend, VariantOpener open_variant);

  // The segment as one graph, on the chain's tensors, against the chain's tensors.
  Reading segment(const NodeSet& nodes);
  // The same with each node in a graph of its own.
  Reading unfused(const NodeSet& nodes);
  // segment() against unfused().
  Reading fused_against_unfused(const NodeSet& nodes);
  // The cut model against the reference.
  Reading assembled(const Assignment& assignment);
  NodeReading alone(int node, NodeInputs inputs, Executor executor, int draw);
  // Run repeatedly on the chain's tensors: are there different bits, and a wrong run among them? Honest kernels whose
  // threads race for the order of a sum differ, and are right each time.
  bool unsteady(int node);
  std::optional<NodeReading> rewritten(int node);
  Reading without_passes(const NodeSet& nodes, const std::vector<std::string>& disabled);
  Expected<CapturedCase> capture(const NodeSet& nodes);

 private:
  Expected<CapturedCase> case_of(const NodeSet& nodes);
  FloorSource floor_of(const NodeSet& nodes, const CapturedCase& segment);
  Outcome run_unfused(const CapturedCase& segment);
  Reading segment_on(Backend& backend, const NodeSet& nodes);
  Expected<std::vector<std::optional<Tensor>>> inputs_of(int node, NodeInputs kind, int draw);
  NodeReading alone_on(Backend& backend, int node, const std::vector<std::optional<Tensor>>& inputs);
  NodeReading judged(const Node& node, int opset, const std::vector<std::optional<Tensor>>& inputs,
                     const std::vector<std::optional<Tensor>>& got) const;

  const ModelUnderTest& model_;
  Backend& backend_;
  const VariantOpener open_variant_;
  std::map<NodeSet, Floor> floors_;
};

// Values drawn anew like those of `tensor`: resampled with replacement, each moved by a relative step of at most 2^-8
// so that few are equal; zeros stay zeros. Integers and booleans are returned as they are: they may be indices.
Tensor drawn_like(const Tensor& tensor, Rng& rng);

}  // namespace opdiff
