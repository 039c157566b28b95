// a^b for every scalar of the formulas. As an Enclosure of exact operands it costs one row of the budget table; errors
// of the operands move b log a, whose exponential it is.
#pragma once

#include "numerics/dual.h"
#include "numerics/enclosure.h"
#include "numerics/working.h"

namespace opdiff {

inline double power(double a, double b) { return std::pow(a, b); }
inline Quad power(Quad a, Quad b) { return powq(a, b); }
inline Working power(Working a, Working b) { return Working::round(std::pow(a.v, b.v)); }

inline Dual power(const Dual& a, const Dual& b) {
  Dual y(powq(a.v, b.v));
  if (a.d != 0) y.d += b.v * powq(a.v, b.v - 1) * a.d;
  if (b.d != 0) y.d += y.v * math::log(a.v) * b.d;
  return y;
}

template <class V>
Enclosure<V> power(const Enclosure<V>& a, const Enclosure<V>& b) {
  const V v = power(a.v, b.v);
  const double size = std::fabs(static_cast<double>(v)), base = a.magnitude();
  Enclosure<V> argument;  // b log |a|
  double spread = 0;
  if (a.e > 0 || b.e > 0 || a.overflow || b.overflow) {
    // A negative base has no power that is not whole, and its sign follows the exponent's last bit.
    const bool is_smooth = base > a.e && !(a.v < 0 && b.e > 0) && !a.overflow && !b.overflow;
    if (is_smooth) {
      const double slope = std::log(base), move = -std::log1p(-a.e / base);
      argument.e = b.magnitude() * move + b.e * (std::fabs(slope) + move);
      enclosure_detail::combine(argument, a, b.value() / a.value(), b, slope);
      spread = size * std::expm1(argument.e);
    } else {
      argument.e = argument.s = spread = kInfinity;
      argument.overflow = kPlusInfinity | kMinusInfinity | kNaN;
    }
  }
  return enclosure_detail::function(argument, v, size, spread, budget(Function::pow));
}

}  // namespace opdiff
