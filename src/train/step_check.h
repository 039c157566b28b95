// Proven steps: every forward, backward and update node of a training step judged on the backend that computes it,
// alone, on the reference chain's tensors of that very step. Across steps it keeps one row a node: the worst verdict
// and when.
#pragma once

#include <array>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "judge/verdict.h"
#include "plan/known.h"
#include "plan/thread_pool.h"
#include "train/execution.h"

namespace opdiff {

struct CheckedNode {
  std::string id, op, backend;
  std::int64_t steps = 0;                        // in which it was judged
  std::array<std::int64_t, kRungCount> rungs{};  // steps by the worst rung of the node's outputs
  std::int64_t known = 0;                        // steps explained by the backend's known.toml
  std::int64_t unproven = 0;
  Verdict worst;
  std::string output;  // whose verdict it is
  std::int64_t worst_step = 0;
  std::string failure;  // why the backend does not give the node alone, the last time

  // A proven error in any step that known.toml does not explain, or an unlikely result in three: by chance alone that
  // has odds of 1e-9 each (docs/numerics.md, section 4).
  bool is_defect() const;
};

// Adds the rows of one check to those of another of the same nodes (steps of batches of another size).
void add_rows(const std::vector<CheckedNode>& rows, std::vector<CheckedNode>* to);

class StepCheck {
 public:
  // What is given must outlive it.
  StepCheck(const Graph& graph, const TypeMap& types, const std::vector<int>& labels, std::vector<Party>& parties,
            int threads);
  ~StepCheck();

  // Begins to compute the reference's tensors of the step that check() is asked for next, while the caller goes on.
  void prepare(const TensorMap& inputs);
  // Judges all nodes of step number `step` on `inputs`; returns the reference's outputs of the step. A failed outcome
  // is a backend's death or refusal; errors are the graph's. The nodes are judged while the caller goes on.
  Expected<TensorMap> check(std::int64_t step, const TensorMap& inputs, Outcome* outcome);

  // Waits for those that are still being judged.
  const std::vector<CheckedNode>& nodes();
  std::int64_t steps() const { return steps_; }

 private:
  struct Group;
  // What the reference had of one node.
  struct Taken {
    std::vector<std::optional<Tensor>> inputs;
    std::vector<Tensor> outputs;  // none where a slot is absent
  };
  // The reference's step.
  struct Chain {
    std::vector<Taken> nodes;
    TensorMap tensors, outputs;
  };
  Expected<std::shared_ptr<const Chain>> walk(const TensorMap& inputs) const;
  void judge(int index, std::int64_t step, const Taken& taken, const std::vector<std::optional<Tensor>>& got,
             const std::vector<KnownDivergence>& known, char* by_order);

  const Graph& graph_;
  const std::vector<int>& labels_;
  std::vector<Party>& parties_;
  std::mutex rows_;  // a node may be judged in two steps at once
  std::vector<CheckedNode> nodes_;
  // Of the last two steps, in turn. What a step of the same turn left is there: no step is begun before the one two
  // steps before has been judged.
  struct Turn {
    std::shared_ptr<std::latch> judged;
    std::vector<char> by_order;  // whether an order of summation explained the node
  };
  std::array<Turn, 2> turns_;
  std::vector<std::unique_ptr<Group>> groups_;  // by party
  std::int64_t steps_ = 0;
  std::future<Expected<std::shared_ptr<const Chain>>> prepared_;
  ThreadPool pool_;
};

}  // namespace opdiff
