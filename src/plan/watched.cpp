#include "plan/watched.h"

namespace opdiff {

Outcome WatchedBackend::prepare(const Graph& graph, const PrepareOptions& options, int* handle) {
  const bool packed = options.isolated && graph.nodes.size() > 1;
  Outcome outcome = base_.prepare(graph, options, handle);
  if (outcome.ok() && packed) packed_.insert(*handle);
  look_at(outcome, packed);
  return outcome;
}

Outcome WatchedBackend::run(int handle, const TensorMap& inputs, int repeat) {
  Outcome outcome = base_.run(handle, inputs, repeat);
  look_at(outcome, packed_.count(handle) > 0);
  return outcome;
}

void WatchedBackend::release(int handle) {
  packed_.erase(handle);
  base_.release(handle);
}

void WatchedBackend::look_at(const Outcome& outcome, bool packed) const {
  if (is_death(outcome.kind) && (outcome.kind == OutcomeKind::crash || !packed)) note_(outcome.kind, outcome.reason);
  for (const auto& [node, failure] : outcome.node_failures) {
    if (is_death(failure.first)) note_(failure.first, fmt::format("node '{}': {}", node, failure.second));
  }
}

}  // namespace opdiff
