#include "workers/backend.h"

#include "ops/meta_operator.h"

namespace opdiff {

std::string_view to_string(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::ok: return "ok";
    case OutcomeKind::unsupported: return "unsupported";
    case OutcomeKind::error: return "error";
    case OutcomeKind::crash: return "crash";
    case OutcomeKind::timeout: return "timeout";
    case OutcomeKind::out_of_memory: return "out-of-memory";
  }
  return "error";
}

bool lacks_gradient(const BackendInfo& info, const Node& node) {
  return node.domain == kGradientDomain && !info.gradient;
}

Outcome run_once(Backend& backend, const Graph& graph, const TensorMap& inputs, const PrepareOptions& options) {
  int handle = 0;
  Outcome outcome = backend.prepare(graph, options, &handle);
  if (!outcome.ok()) return outcome;
  outcome = backend.run(handle, inputs);
  backend.release(handle);
  return outcome;
}

}  // namespace opdiff
