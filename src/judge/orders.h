// Explains results that look unlikely by honest arithmetic that is emulated in the working format (docs/numerics.md,
// section 3): a named order of summation, on the terms of some of the failing elements where the operator names them,
// else by the whole operator, computed once for each order; or an algorithm such as Winograd's, element by element.
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

  // The deviation of elements[i]; its own error where that is no finite number of deviations (index order is exact).
  double scale(std::size_t i) const;
  std::vector<double> scaled(std::size_t count) const;  // error / scale of the first `count` of `elements`
};

OrderExplanation explain_by_order(const MetaOperator& op, const Call& call, const StandsOut& out,
                                  std::span<const Profile> profiles);

// By one likely order that makes these very bits: cheap, and the strongest explanation that there is. Of operators that
// name their sums' terms.
OrderExplanation explain_bit_for_bit(const MetaOperator& op, const Call& call, const StandsOut& out,
                                     std::span<const Profile> profiles);

// "FORMULA, ORDER" in which the whole operator, computed in `profile`, gives `got` bit for bit; "": none of them does.
std::string order_that_gives(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                             const Profile& profile);

// Does `algorithm`, emulated, err as much where the result stands out, and as little where it does not?
bool errs_as_emulated(const NamedAlgorithm& algorithm, const Profile& profile, const StandsOut& out);

}  // namespace opdiff
