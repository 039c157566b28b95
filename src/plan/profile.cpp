#include "plan/profile.h"

#include <algorithm>

namespace opdiff {
namespace {

constexpr int kRepeats = 5;  // the first pays for what is made lazily

template <typename T>
std::optional<T> median(std::vector<T> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

NodeCost measure_node(Backend& backend, const Graph& graph, const NodeTensors& node) {
  const NodeBatch sent = batch_of(graph, {node});
  int handle = 0;
  // Not PrepareOptions::profile: a runtime's own profiler takes time and memory.
  if (!backend.prepare(sent.isolated.graph, {.isolated = true}, &handle).ok()) return {};
  const Outcome outcome = backend.run(handle, sent.feeds, kRepeats);
  backend.release(handle);
  if (!outcome.ok() || !outcome.node_failures.empty()) return {};
  return {median(outcome.wall_ms), median(outcome.peak_bytes)};
}

}  // namespace opdiff
