// --profile: what a node costs by itself, from runs that do nothing else.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/segment.h"
#include "workers/backend.h"

namespace opdiff {

struct NodeCost {
  std::optional<double> wall_ms;
  std::optional<std::int64_t> peak_bytes;  // only where memory is counted: OpenOptions::count_memory
};

// Medians of several runs of the node as a graph of its own; empty where it does not run so.
NodeCost measure_node(Backend& backend, const Graph& graph, const NodeTensors& node);

}  // namespace opdiff
