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
  double spread = 0, turned = 0;
  if (a.e > 0 || b.e > 0 || a.overflow || b.overflow) {
    if (base > a.e && !a.overflow && !b.overflow) {
      const double slope = std::log(base), move = -std::log1p(-a.e / base);
      argument.e = b.magnitude() * move + b.e * (std::fabs(slope) + move);
      enclosure_detail::combine(argument, a, b.value() / a.value(), b, slope);
      // The largest that it may be, from its logarithm: v itself may have left double's range.
      const double largest = std::exp(b.value() * slope * (1 + std::copysign(0x1p-50, b.value() * slope)) + argument.e);
      spread = argument.e < 1 ? size * std::expm1(argument.e) : largest;
      // A negative base has no power that is not whole, and its sign follows the exponent's last bit.
      if (a.v < 0 && b.e > 0) {
        turned = largest;
        spread = 2 * largest;
        argument.e = std::max(argument.e, std::numeric_limits<double>::denorm_min());  // of 1 the logarithm is exact
        argument.overflow = kNaN | (turned > arithmetic().max ? kPlusInfinity | kMinusInfinity : kNoOverflow);
      }
    } else {
      argument.e = argument.s = spread = kInfinity;
      argument.overflow = kPlusInfinity | kMinusInfinity | kNaN;
    }
  }
  Enclosure<V> y = enclosure_detail::function(argument, v, size, spread, budget(Function::pow));
  using Square = typename Enclosure<V>::Square;
  y.s += Square(turned) * turned;
  return y;
}

}  // namespace opdiff
