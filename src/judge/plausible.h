// Is a tensor of z scores plausible as honest rounding? Root mean square over the tensor and over every slice along
// every axis, and the largest |z|, each against a limit with odds of 1e-9 (docs/numerics.md, introduction to section
// 3).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/tensor.h"

namespace opdiff {

// Odds at which honest rounding is no longer believed, per tensor.
inline constexpr double kOdds = 1e-9;
// Honest kernels' root mean square reaches 0.77 (sequential f32 sums of varied data: docs/numerics.md), so
// limits on it are scaled by that, and never below 2: structured data correlate roundings.
inline constexpr double kHonestRms = 0.77;
inline constexpr double kLeastRmsLimit = 2;
// Largest single |z| that honest kernels showed is 4.2 (docs/numerics.md).
inline constexpr double kLeastMaxLimit = 8;

struct Plausibility {
  bool plausible = true;
  double rms = 0, mean = 0, max = 0;  // of z; max is of |z|
  double rms_limit = kLeastRmsLimit, max_limit = kLeastMaxLimit;
  double odds = 1;  // of the worst figure, times the number of figures looked at
};

// The largest |z| that one element among `count` may have.
double max_limit(std::int64_t count);
// The limit on the root mean square of `count` independent scores when `looks` figures are looked at.
double rms_limit(std::int64_t count, double looks);

// What the statistics need of each element: z, whether it counts (deviation > 0), and the pair (centre, got), equal
// pairs of which count once.
struct Scores {
  Shape shape;
  std::span<const double> z;
  std::span<const char> counts;
  std::span<const double> centre, got;
  // Axes whose coordinates name an error group; nullopt: every element is its own.
  std::optional<std::vector<int>> group_axes;
};

// first_failure: of scores that are implausible only that is said, and `odds`, `rms` and the limits may be another
// figure's than the worst's. Slices of millions of elements cost more than the rest of a rung.
enum class Scoring { full, first_failure };
Plausibility judge_scores(const Scores& scores, Scoring scoring = Scoring::full);

}  // namespace opdiff
