// What kind of error a wrong tensor has: every pattern that could have made it, so that repeats of one fault are known
// as one although no two cases look alike.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace opdiff {

// Patterns by name: "scaled", "shifted", "one element", "one slice of axis 1", "border", "zeros", "moved", "rounded",
// "non-finite", "wrong shape", "scattered".
using ErrorPatterns = std::set<std::string>;

// `floor` has, per element, the error that honest arithmetic makes; elements beyond kPatternLimit times it are wrong.
// `scattered` (no pattern) is among them where the specific ones may be chance: odds above kPatternOdds.
inline constexpr double kPatternLimit = 6, kPatternOdds = 1e-6;
// `unit_roundoff` is that of the format that `got` was rounded to: a shifted number has the rounding of its own size.
ErrorPatterns error_patterns(const Tensor& got, const Tensor& expected, const std::vector<double>& floor,
                             double unit_roundoff);

}  // namespace opdiff
