// One element against a yardstick.
#pragma once

#include <cmath>

#include "ops/op.h"

namespace opdiff {

// deviation: the worst case is infinite and says nothing, the deviation is not. unproven: neither says anything.
enum class Fit : char { impossible, possible, deviation, unproven };
struct Look {
  Fit fit;
  double z;  // in deviations
};

// Sums of squares in between have a root as good as std::hypot's.
inline constexpr double kLeastSquares = 0x1p-900, kLargestSquares = 0x1p900;

// std::hypot where squares leave the range of double; it costs ten times as much.
inline double hypotenuse(double a, double b) {
  const double squares = a * a + b * b;
  return squares > kLeastSquares && squares < kLargestSquares ? std::sqrt(squares) : std::hypot(a, b);
}

inline Look look(double y, const EnclosedElement& e) {
  const double c = e.centre;
  const std::uint8_t overflow = e.overflow;
  if (std::isnan(y)) return {std::isnan(c) || (overflow & kNaN) ? Fit::possible : Fit::impossible, 0};
  if (std::isinf(y)) {
    const bool by_overflow = overflow & (y > 0 ? kPlusInfinity : kMinusInfinity);
    return {y == c || by_overflow ? Fit::possible : Fit::impossible, 0};
  }
  // A centre beyond double (f64 under test) is no infinity; where the radius is one, too, nothing is known.
  if (!std::isfinite(c)) return e.radius < kInfinity ? Look{Fit::impossible, kInfinity} : Look{Fit::unproven, 0};
  const double off = (y - c) - e.low;
  if (off == 0) return {Fit::possible, 0};
  const double spread = hypotenuse(e.deviation, e.rho);
  const double z = spread > 0 ? off / spread : kInfinity;
  const double radius = e.radius + e.rho;
  // A worst case that says nothing (n u >= 1) leaves the deviation to judge; where that is infinite too, nothing is
  // known.
  if (!(radius < kInfinity))
    return {std::isfinite(spread) && spread > 0 ? Fit::deviation : Fit::unproven, std::isfinite(z) ? z : 0};
  return {std::fabs(off) <= radius ? Fit::possible : Fit::impossible, z};
}

// Section 8: the oracle's own error must be small beside the yardstick, or its word is no proof.
inline bool is_blurred(const EnclosedElement& e, double error) {
  return e.rho * 8 > e.deviation && e.deviation > 0 && error != 0;
}

}  // namespace opdiff
