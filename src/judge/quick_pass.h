// The common case in one pass over a tensor: every element honest rounding, and all of them together plausible. What
// does not pass is for judge/attempt.h, which says why.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "judge/verdict.h"
#include "ops/op.h"

namespace opdiff {

class QuickPass {
 public:
  // `explanation`: the formula whose results under `profile` are the yardstick. `expected`: correctly rounded.
  // `with_figures`: the verdict's classic figures, too. References must outlive it.
  QuickPass(const MetaOperator& op, const Call& call, int output, const Tensor& got, const Tensor& expected,
            const Profile& profile, std::string explanation, bool with_figures);

  // The yardstick of all elements; or of some, from `first` on, as the formula gives them: on any thread, in any order.
  void look(const EnclosedTensor& yardstick);
  void look(std::int64_t first, std::span<const Enclosure<double>> values);

  // When every element was looked at: the verdict of Attempt::explain(Rung::rounding, yardstick) where that explains
  // all; nullopt where it does not, or the tensor is not of 32-bit floats, or some of its elements are unspecified.
  std::optional<Verdict> verdict();

 private:
  // What is known of the elements so far.
  struct Tally {
    std::int64_t exact = 0, unproven = 0;
    double excess = 0;
    std::size_t worst = 0;
    double weight = -1, worst_error = 0;
    EnclosedElement at;  // the worst one's

    void weigh(std::size_t i, double z, double size);
    void add(const Tally& other);
  };
  struct Block;
  template <class Yardstick>
  void look_with(std::size_t first, std::size_t count, const Yardstick& yardstick);
  bool look_at(const EnclosedElement& e, std::size_t i, Tally* tally);
  bool look_at(const Block& block, std::size_t first, Tally* tally);

  const MetaOperator& op_;
  const Call& call_;
  int output_;
  const Tensor& got_;
  const Profile& profile_;
  std::string explanation_;
  bool with_figures_;
  double limit_;
  std::span<const float> ys_, rights_;
  std::unique_ptr<double[]> z_, centre_;
  std::unique_ptr<char[]> counts_;
  std::atomic<bool> failed_;
  std::mutex mutex_;
  Tally tally_;
};

}  // namespace opdiff
