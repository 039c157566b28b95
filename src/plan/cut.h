// A whole graph run in pieces: convex segments one after the other, each by a runner of its own (a backend, the
// reference). Substitution and the chained run of single nodes are both this.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/segment.h"
#include "reference/evaluate.h"
#include "workers/backend.h"

namespace opdiff {

using SegmentRunner = std::function<Outcome(const Graph& segment, const TensorMap& inputs)>;
struct CutPart {
  NodeSet nodes;
  SegmentRunner run;
};

// Runs the parts in order; a tensor is dropped after the last part that takes it. On ok(), `outputs` are the graph's.
// `visit` sees each part's outputs. The failure of a part is the failure of the whole, its reason names the part's
// nodes.
Outcome run_cut(const Graph& graph, const TensorMap& inputs, const std::vector<CutPart>& parts, const TypeMap& types,
                const std::function<void(const CutPart&, const TensorMap& outputs)>& visit = {});

// Every node in a part of its own; Constant nodes have none, extract_subgraph makes initialisers of them.
std::vector<CutPart> nodes_apart(const Graph& graph, const SegmentRunner& run);

SegmentRunner backend_runner(Backend& backend);
SegmentRunner reference_runner(ForeignEvaluator foreign);

// The first of the backends that can run a node alone gives the chain's tensors of a node without a reference.
using BackendSource = std::function<Expected<Backend*>()>;
ForeignEvaluator foreign_evaluator(const Graph& graph, std::vector<BackendSource> backends);

}  // namespace opdiff
