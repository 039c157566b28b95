// Many cases side by side in one graph: one session, one compilation, and each case's nodes can still be fused with
// each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "forms/oracle.h"
#include "workers/backend.h"

namespace opdiff {

struct Bundle {
  Graph graph;
  std::optional<Training> training;
  TensorMap inputs;
};

// Tensors and ids of case k are named PREFIX(k) + their own.
std::string bundle_prefix(std::size_t k);
Bundle bundle(const std::vector<const RunnableCase*>& cases, std::size_t side);

// What became of each case on one backend: run as one graph; where that fails, by halves, so that each failure is that
// of its own case.
std::vector<Outcome> run_cases(Backend& backend, const std::vector<const RunnableCase*>& cases, std::size_t side);

}  // namespace opdiff
