// `opdiff compare` without its command line: the whole model and every node on every backend, then the culprits of each
// backend that is off. Reads plan/ for what to run and locate/localise.h for whom to blame.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "locate/localise.h"
#include "plan/options.h"
#include "plan/probe.h"

namespace opdiff {

struct BackendUnderTest {
  std::string spec;
  BackendSource open;     // called often; the first call may wait for the process to come up
  VariantOpener without;  // the same with passes switched off; may be empty
};

struct CompareRequest {
  const Graph& graph;  // validated, dimensions bound
  const TensorMap& inputs;
  std::vector<BackendUnderTest> backends;
  // What is computed by which backend, by its place: an operator's name or a node's id. The rest is the first
  // backend's.
  std::vector<std::pair<std::string, std::size_t>> bindings;
};

struct CompareResult {
  Comparison comparison;
  std::vector<Culprit> culprits;  // of all backends, in their order
  struct NodeOnBackend {
    std::string node;
    std::string backend;
  };
  std::vector<NodeOnBackend> failing;      // nodes that a backend refuses or cannot finish, alone
  std::vector<NodeOnBackend> unconfirmed;  // `unlikely` without confirmation
};

// Errors: the model or its inputs (refused attributes, shapes), or a backend that cannot be opened.
Expected<CompareResult> compare_model(const CompareRequest& request, const CompareOptions& options);

}  // namespace opdiff
