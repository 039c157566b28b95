// Whole outputs against the reference chain's, in multiples of the noise floor (docs/numerics.md, section 6).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan/comparison.h"

namespace opdiff {

inline constexpr int kNoiseRuns = 8;  // docs/numerics.md, section 6

using Floor = std::map<std::string, std::vector<double>>;
// Asked only when some output is not bit-identical to the expected one.
using FloorSource = std::function<Expected<const Floor*>()>;

// `details`, where given, receives the comparison of each output that has the right type.
Reading read_outputs(const Outcome& outcome, const TensorMap& expected, const FloorSource& floor,
                     std::map<std::string, FloorComparison>* details = nullptr);

// A float output [rows, classes]: on how many rows does another class win, and was the race closer than the noise?
// `labels`, where given, has one integer a row.
std::optional<ClassifierResult> classify(const Tensor& got, const Tensor& expected, const std::vector<double>* floor,
                                         const Tensor* labels = nullptr);

}  // namespace opdiff
