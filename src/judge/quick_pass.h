// The common case in one pass over a tensor: every element honest rounding, and all of them together plausible. What
// does not pass is for judge/attempt.h, which says why.
#pragma once

#include <optional>
#include <span>

#include "judge/verdict.h"
#include "ops/op.h"

namespace opdiff {

// The verdict of Attempt::explain(Rung::rounding, yardstick) where that explains all; nullopt where it does not, or the
// tensor is not of 32-bit floats, or some of its elements are unspecified. `with_figures`: the verdict's classic
// figures, too. `expected`: correctly rounded.
std::optional<Verdict> quick_pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                                  const Tensor& expected, const EnclosedTensor& yardstick, const std::string& profile,
                                  const std::string& explanation, bool with_figures);
// The same before an EnclosedTensor is made of the formula's `values`.
std::optional<Verdict> quick_pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                                  const Tensor& expected, std::span<const Enclosure<double>> values,
                                  const Profile& profile, const std::string& explanation, bool with_figures);

}  // namespace opdiff
