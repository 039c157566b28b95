// Sums and dot products in a named order, rounded after every step to a working format: what one particular honest
// kernel computes. Used to attack the yardsticks and to explain an order of summation by name.
#pragma once

#include <span>

#include "base/format.h"
#include "numerics/working.h"

namespace opdiff {

// sum of a[k] * b[k], or of a[k] where b is empty.
double sum_in_order(std::span<const double> a, std::span<const double> b, const SumOrder& order, const Format& format);

}  // namespace opdiff
