// What every stage of a comparison is told: limits, seed, and how to report progress or hear of an interruption.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/tensor.h"
#include "graph/training.h"

namespace opdiff {

struct Progress {
  std::string what;  // "nodes", "locating on onnxruntime"
  std::int64_t done = 0;
  std::int64_t total = 0;  // 0: not known
};

struct CompareOptions {
  std::uint64_t seed = 0;
  int threads = 1;                                  // that judge; no result depends on it
  std::size_t batch_bytes = std::size_t{64} << 20;  // tensors of one batch of isolated nodes
  bool profile = false;                             // peak memory of each node, median times
  // An extra check of the whole model's outputs, for people who must meet a contract: |y - c| <= atol + rtol |c|.
  std::optional<double> rtol, atol;
  int localise = 20;             // culprits of one backend that are localised in full (locate/localise.h)
  std::optional<Tensor> labels;  // of a classifier's rows, for its accuracy
  // The graph is a training graph, and frameworks run the whole of it by their own autodiff where they have one.
  std::optional<Training> training;
  std::function<void(const Progress&)> progress;
  const std::atomic<bool>* interrupted = nullptr;

  bool stop() const { return interrupted != nullptr && interrupted->load(); }
  void report(const std::string& what, std::int64_t done, std::int64_t total) const {
    if (progress) progress({what, done, total});
  }
};

}  // namespace opdiff
