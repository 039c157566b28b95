// Free-running drift: trainings by the reference beside the one under test, one exact and some with honest rounding
// noise in every node, all from one state and in one order. Where the tested one is farther from the exact one than the
// noisy ones are, something else than rounding drives it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/step.h"

namespace opdiff {

inline constexpr int kNoisyTrainings = 4;
inline constexpr double kDriftLimit = 3;  // root mean squares of the noisy ones (docs/numerics.md, section 6)

struct DriftPoint {
  std::int64_t step = 0;
  double loss = 0, reference_loss = 0;
  double drift = 0;    // largest over the state's tensors: distance / floor, as root mean squares
  std::string tensor;  // where
  bool left() const { return drift > kDriftLimit; }
};

class FreeRun {
 public:
  FreeRun(const TensorMap& state, std::uint64_t seed);

  // One step of all; `inputs` holds the batch (its state is replaced by each training's own). `own` is what the tested
  // training made of the step.
  Expected<DriftPoint> advance(const StepGraph& step, std::int64_t number, const TensorMap& inputs,
                               const TensorMap& own);

 private:
  TensorMap exact_;
  std::vector<TensorMap> noisy_;
  const std::uint64_t seed_;
};

}  // namespace opdiff
