// Explains results that look unlikely by a named order of summation, emulated in the working format (docs/numerics.md,
// section 3, "Order of summation"): on the terms of some of the failing elements where the operator names them, else by
// the whole operator, computed once for each order.
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

// What stands out of an output: of every element got - centre and the deviation of honest rounding.
struct StandsOut {
  int output;
  const Tensor& got;
  std::span<const std::int64_t> elements;  // flat indices of those that fail, worst first
  std::span<const double> error, deviation;
};

OrderExplanation explain_by_order(const MetaOperator& op, const Call& call, const StandsOut& out,
                                  std::span<const Profile> profiles);

}  // namespace opdiff
