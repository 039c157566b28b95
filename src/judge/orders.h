// Explains sums that look unlikely by a named order of summation: the order is emulated in the working format on some
// of the failing elements (docs/numerics.md, section 3, "Order of summation").
#pragma once

#include <span>
#include <string>

#include "ops/op.h"

namespace opdiff {

struct OrderExplanation {
  bool explained = false;
  std::string order;  // the order that came closest
  bool warn = false;  // its error is above 8 deviations of pairwise summation
};

// `elements`: flat indices of output `output` that fail, worst first (at most 256 are looked at); `error` gives got -
// centre.
OrderExplanation explain_by_order(const MetaOperator& op, const Call& call, int output,
                                  std::span<const std::int64_t> elements, std::span<const double> error,
                                  const Format& format);

}  // namespace opdiff
