// A backend whose deaths are noted, whoever asks it and whatever becomes of the answer: a worker that is killed while a
// culprit is looked for is started again, and yet the run must not end as if nothing had happened.
#pragma once

#include <functional>
#include <memory>
#include <set>

#include "plan/comparison.h"

namespace opdiff {

class WatchedBackend : public Backend {
 public:
  using Note = std::function<void(OutcomeKind kind, const std::string& reason)>;

  // `note` is called for each crash, timeout and lack of memory, one at a time. Not for a timeout or a lack of memory
  // of many isolated nodes in one graph: that is our packing, and each node alone is asked next.
  WatchedBackend(Backend& base, Note note) : base_(base), note_(std::move(note)) {}
  WatchedBackend(std::unique_ptr<Backend> base, Note note)
      : owned_(std::move(base)), base_(*owned_), note_(std::move(note)) {}

  const Backend& base() const { return base_; }
  const BackendInfo& info() const override { return base_.info(); }
  Outcome prepare(const Graph& graph, const PrepareOptions& options, int* handle) override;
  Outcome run(int handle, const TensorMap& inputs, int repeat) override;
  void release(int handle) override;

 private:
  void look_at(const Outcome& outcome, bool packed) const;

  const std::unique_ptr<Backend> owned_;
  Backend& base_;
  const Note note_;
  std::set<int> packed_;  // handles of graphs of many isolated nodes
};

}  // namespace opdiff
