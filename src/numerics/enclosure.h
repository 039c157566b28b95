// One formula gives value and both yardsticks: Enclosure carries an exact value v, a radius (what any implementation
// under the current profile may be off by, at most) and a variance (what it is off by on average), through + - * / and
// the elementary functions. Derivations: docs/numerics.md, section 2. Sums and products of many terms: numerics/sum.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "numerics/budget.h"
#include "numerics/profile.h"
#include "numerics/scalar.h"

namespace opdiff {

// Which non-finite values an overflow on the way may yield.
enum Overflow : std::uint8_t { kNoOverflow = 0, kPlusInfinity = 1, kMinusInfinity = 2, kNaN = 4 };

// The radius formulas themselves are evaluated in double; each step is rounded outward by this factor.
inline constexpr double kOutward = 1 + 0x1p-40;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Distance between neighbours of |x| in the inner format.
inline double inner_ulp(double x, const Arithmetic& a) {
  const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0x7FF0000000000000u);
  return std::max(2 * a.u * power, a.eta);
}

template <class V>
struct Enclosure {
  static constexpr int kSources = 2;
  // Squares of f64 numbers leave double's range; those of f32 and narrower do not.
  using Square = std::conditional_t<std::is_same_v<V, double>, double, long double>;

  V v = 0;
  double e = 0;                      // radius
  Square s = 0;                      // variance of independent errors
  double shared[kSources] = {0, 0};  // signed coefficient per shared source, in standard deviations
  std::uint8_t overflow = kNoOverflow;

  Enclosure() = default;
  // An input as stored: exact, unless subnormals are read as zero.
  Enclosure(V value) : v(value) {  // NOLINT: implicit, formulas mix exact inputs and enclosures
    if (arithmetic().flush_to_zero && v != 0 && magnitude() < arithmetic().lambda) {
      e = magnitude();
      s = Square(e) * e;
    }
  }
  Enclosure(int value) : v(value) {}  // NOLINT
  template <class W = V>
    requires(!std::is_same_v<W, double>)
  Enclosure(double value) : Enclosure(static_cast<V>(value)) {}  // NOLINT

  double value() const { return static_cast<double>(v); }
  double magnitude() const { return std::fabs(static_cast<double>(v)); }
  bool exact() const { return e == 0 && s == 0 && shared[0] == 0 && shared[1] == 0; }
  Square variance() const { return s + Square(shared[0]) * shared[0] + Square(shared[1]) * shared[1]; }
};

namespace enclosure_detail {

// The format's range ends inside the enclosure, on one side or on both.
template <class V>
void note_overflow(Enclosure<V>& x, double max) {
  const double v = x.value();
  if (v + x.e > max) x.overflow |= kPlusInfinity;
  if (x.e - v > max) x.overflow |= kMinusInfinity;
}

// A finite value beyond the range of double (f64 under test), or a radius that is not a number any more: nothing is
// known but that an implementation overflows.
template <class V>
bool beyond_double(Enclosure<V>& x) {
  const bool outside = !(x.magnitude() <= std::numeric_limits<double>::max());
  if (!math::is_finite(x.v) || (!outside && x.e == x.e)) return false;
  x.e = x.s = kInfinity;
  if (outside) x.overflow |= x.v > 0 ? kPlusInfinity : kMinusInfinity;
  return true;
}

// A radius rounded outward. Where f64 is under test it may be subnormal itself, in steps of 2^-1074; an operation makes
// at most four of half a step.
template <class V>
double outward(double e) {
  using Limits = std::numeric_limits<double>;
  return e * kOutward + (!std::is_same_v<V, double> && e < Limits::min() && e > 0 ? 2 * Limits::denorm_min() : 0);
}

// The rounding that ends every operation: adds u(|v| + e), and eta or lambda where the result may be subnormal.
template <class V>
[[gnu::always_inline]] inline Enclosure<V> rounded(Enclosure<V> x, bool can_underflow) {
  const Arithmetic& a = arithmetic();
  const double m = x.magnitude();
  if (!(x.s == x.s)) x.s = kInfinity;                       // nothing times infinitely much: not known
  if (beyond_double(x) || !math::is_finite(x.v)) return x;  // infinite or NaN: the value itself says so
  double step = a.u * (m + x.e);
  using Square = typename Enclosure<V>::Square;
  const Square typical = a.u * m;
  x.s += typical * typical / 3;
  if (m - x.e < a.lambda) {
    if (can_underflow) {
      step += a.eta;
      if (m < a.lambda) x.s += Square(a.eta) * a.eta / 12;
    }
    if (a.flush_to_zero) {
      step += a.lambda;
      if (m < a.lambda) x.s += Square(m) * m;
    }
  }
  x.e = outward<V>(x.e + step);
  note_overflow(x, a.max);
  return x;
}

// An overflow on the way makes the result `limit` in some implementations.
template <class V>
void may_become(Enclosure<V>& y, double limit) {
  using Square = typename Enclosure<V>::Square;
  const double m = std::fabs(y.value() - limit);
  y.e = y.e < kInfinity ? y.e + m : m;
  if (!(y.variance() < kInfinity)) {
    y.s = 0;
    for (double& c : y.shared) c = 0;
  }
  y.s += Square(m) * m;
}

// The same for a bounded function with limits at the infinities that its argument may be.
template <class V>
void may_saturate(Enclosure<V>& y, std::uint8_t argument, double at_minus, double at_plus) {
  if (argument & kPlusInfinity) may_become(y, at_plus);
  if (argument & kMinusInfinity) may_become(y, at_minus);
  y.overflow &= kNaN;
}

// The slopes are of Square, too: that of a quotient of f64 numbers may be outside double where its variance is not.
template <class V>
void combine(Enclosure<V>& y, const Enclosure<V>& a, typename Enclosure<V>::Square da, const Enclosure<V>& b,
             typename Enclosure<V>::Square db) {
  y.s = da * da * a.s + db * db * b.s;
  for (int k = 0; k < Enclosure<V>::kSources; ++k)
    y.shared[k] = static_cast<double>(da * a.shared[k] + db * b.shared[k]);
}

// f(x) with derivative d at x and `spread`, a bound on |f(x') - f(x)| for |x' - x| <= x.e; `ulps` of rounding.
template <class V>
Enclosure<V> function(const Enclosure<V>& x, V value, double derivative, double spread, double ulps) {
  const Arithmetic& a = arithmetic();
  Enclosure<V> y;
  y.v = value;
  y.overflow = x.overflow;
  const double m = y.magnitude();
  y.e = x.e == 0 ? 0 : spread;
  if (beyond_double(y) || !math::is_finite(value)) return y;
  ulps = std::max(ulps, a.function_ulps);
  using Square = typename Enclosure<V>::Square;
  if (!(y.e < kInfinity)) y.s = kInfinity;  // the argument may be at a pole: the derivative says nothing
  // An exact argument has no error to carry, however steep the function is (log of a subnormal f64).
  if (x.s != 0) y.s += Square(derivative) * derivative * x.s;
  for (int k = 0; k < Enclosure<V>::kSources; ++k)
    if (x.shared[k] != 0) y.shared[k] = derivative * x.shared[k];
  const Square step = ulps * inner_ulp(m, a);
  y.s += step * step / 3;
  double rounding = ulps * inner_ulp(m + y.e, a);
  if (a.flush_to_zero && m - y.e < a.lambda) {
    rounding += a.lambda;
    if (m < a.lambda) y.s += Square(m) * m;
  }
  y.e = outward<V>(y.e + rounding);
  note_overflow(y, a.max);
  return y;
}

// A sum that was accumulated in a wider format than the inner steps' is rounded to theirs before it is used.
template <class V>
Enclosure<V> rounded_sum(const Enclosure<V>& x) {
  const Arithmetic& a = arithmetic();
  if (a.inner.digits >= a.sum.digits) return x;
  if (x.exact() && !x.overflow && representable(x.value(), a.inner) && !(a.flush_to_zero && x.magnitude() < a.lambda))
    return x;
  return rounded(x, true);
}

inline std::uint8_t negated(std::uint8_t o) {
  return static_cast<std::uint8_t>((o & kNaN) | ((o & kPlusInfinity) ? kMinusInfinity : 0) |
                                   ((o & kMinusInfinity) ? kPlusInfinity : 0));
}

inline std::uint8_t added(std::uint8_t a, std::uint8_t b) {
  std::uint8_t o = a | b;
  if (((a & kPlusInfinity) && (b & kMinusInfinity)) || ((a & kMinusInfinity) && (b & kPlusInfinity))) o |= kNaN;
  return o;
}

// The non-finite values that x is or may become.
template <class V>
std::uint8_t non_finite(const Enclosure<V>& x) {
  const double v = x.value();
  return x.overflow | (v == kInfinity ? kPlusInfinity : v == -kInfinity ? kMinusInfinity : v != v ? kNaN : kNoOverflow);
}

// An infinity meets another that is there or may come as NaN where their signs differ.
template <class V>
std::uint8_t added(const Enclosure<V>& a, const Enclosure<V>& b) {
  const std::uint8_t o = a.overflow | b.overflow;
  return o ? o | (added(non_finite(a), non_finite(b)) & kNaN) : o;
}

// Of a product: an infinity keeps or turns its sign with the other factor, and meets zero as NaN.
template <class V>
std::uint8_t multiplied(const Enclosure<V>& a, const Enclosure<V>& b) {
  std::uint8_t o = 0;
  const auto one = [&](const Enclosure<V>& x, const Enclosure<V>& other) {
    const bool crosses = !(other.magnitude() > other.e);
    if (!x.overflow && !(crosses && other.e > 0 && x.magnitude() == kInfinity)) return;
    if (crosses || other.overflow)
      o |= kPlusInfinity | kMinusInfinity | kNaN;
    else
      o |= other.v > 0 ? x.overflow : negated(x.overflow);
  };
  one(a, b);
  one(b, a);
  return o;
}

// v = a + b or a b without an error of V's own (Knuth's two-sum; a fused multiply-add): where two terms are far apart V
// loses the smaller one as the format does, and v alone would hide it. The product of two doubles is exact in Quad.
template <class V>
bool is_exact_sum(V a, V b, V v) {
  const V part = v - a;
  return (a - (v - part)) + (b - part) == V(0);
}
inline bool is_exact_product(double a, double b, double v) { return std::fma(a, b, -v) == 0; }
template <class V>
bool is_exact_product(V, V, V) {
  return true;
}

// No rounding happens when the operands are exact and the result is a number of the inner format: a correctly rounded
// operation then returns it.
template <class V>
[[gnu::always_inline]] inline bool is_exact_step(const Enclosure<V>& a, const Enclosure<V>& b, V v) {
  if (!a.exact() || !b.exact() || !math::is_finite(v)) return false;
  const double d = static_cast<double>(v);
  return static_cast<V>(d) == v && representable(d, arithmetic().inner) && std::fabs(d) <= arithmetic().max &&
         !(arithmetic().flush_to_zero && std::fabs(d) < arithmetic().lambda && d != 0);
}

}  // namespace enclosure_detail

template <class V>
Enclosure<V> operator-(Enclosure<V> x) {
  x.v = -x.v;
  x.overflow = enclosure_detail::negated(x.overflow);
  for (double& c : x.shared) c = -c;
  return x;
}

template <class V>
Enclosure<V> operator+(const Enclosure<V>& a, const Enclosure<V>& b) {
  Enclosure<V> y;
  y.v = a.v + b.v;
  y.overflow = enclosure_detail::added(a, b);
  if (enclosure_detail::is_exact_step(a, b, y.v) && enclosure_detail::is_exact_sum(a.v, b.v, y.v)) return y;
  y.e = a.e + b.e;
  enclosure_detail::combine(y, a, 1, b, 1);
  return enclosure_detail::rounded(y, false);
}

template <class V>
Enclosure<V> operator-(const Enclosure<V>& a, const Enclosure<V>& b) {
  return a + (-b);
}

template <class V>
Enclosure<V> operator*(const Enclosure<V>& a, const Enclosure<V>& b) {
  Enclosure<V> y;
  y.v = a.v * b.v;
  y.overflow = enclosure_detail::multiplied(a, b);
  if (enclosure_detail::is_exact_step(a, b, y.v) && enclosure_detail::is_exact_product(a.v, b.v, y.v)) return y;
  const double am = a.magnitude(), bm = b.magnitude();
  y.e = am * b.e + bm * a.e + a.e * b.e;
  enclosure_detail::combine(y, a, b.value(), b, a.value());
  y.s += a.variance() * b.variance();  // all there is where both values are zero
  return enclosure_detail::rounded(y, true);
}

template <class V>
Enclosure<V> operator/(const Enclosure<V>& a, const Enclosure<V>& b) {
  Enclosure<V> y;
  y.v = a.v / b.v;
  y.overflow = (b.v < 0 ? enclosure_detail::negated(a.overflow) : a.overflow) | (b.overflow & kNaN);
  if (b.e == 0 && (b.v == 0 || !math::is_finite(b.v))) {
    // Zero, or a number of either sign, by zero.
    if (b.v == 0 && a.e > 0 && a.magnitude() <= a.e) y.overflow |= kPlusInfinity | kMinusInfinity | kNaN;
    if (b.v != 0) y.overflow = a.overflow || b.overflow ? kNaN : kNoOverflow;  // by an infinity
    return y;
  }
  const double bm = b.magnitude(), q = y.magnitude();
  if (bm <= b.e) {
    y.e = kInfinity;
    y.s = kInfinity;
    y.overflow |= kPlusInfinity | kMinusInfinity | kNaN;
    return y;
  }
  // (a + da) / (b + db) - a / b = (da - (a / b) db) / (b + db).
  y.e = (a.e + q * b.e) / (bm - b.e);
  if (b.overflow && enclosure_detail::non_finite(a)) y.overflow |= kNaN;
  using Square = typename Enclosure<V>::Square;
  enclosure_detail::combine(y, a, 1 / Square(b.value()), b, -Square(y.value()) / b.value());
  if (b.overflow) enclosure_detail::may_become(y, 0);  // a / infinity
  return enclosure_detail::rounded(y, true);
}

// Comparisons and selections look at exact values: kinks are judged where the inputs are.
template <class V>
bool operator<(const Enclosure<V>& a, const Enclosure<V>& b) {
  return a.v < b.v;
}
template <class V>
bool operator>(const Enclosure<V>& a, const Enclosure<V>& b) {
  return a.v > b.v;
}

template <class V>
Enclosure<V> sqrt(const Enclosure<V>& x) {
  const V v = math::sqrt(x.v);
  const double r = static_cast<double>(v);
  const double low = x.value() - x.e;
  const double spread = low > 0 ? x.e / (r + std::sqrt(low)) : r + std::sqrt(x.value() + x.e);
  Enclosure<V> y;
  y.v = v;
  y.overflow = x.overflow & (kPlusInfinity | kNaN);
  if (low < 0 || x.overflow & kMinusInfinity) y.overflow |= kNaN;
  if (!(r > 0)) {
    if (x.e == 0) return y;
    y.e = spread;
    y.s = std::sqrt(x.variance());  // sqrt |error|
    return enclosure_detail::rounded(y, false);
  }
  y.e = x.e == 0 ? 0 : spread;
  enclosure_detail::combine(y, x, 0.5 / r, Enclosure<V>(), 0);
  return enclosure_detail::rounded(y, false);
}

template <class V>
Enclosure<V> exp(const Enclosure<V>& x) {
  const V v = math::exp(x.v);
  const double d = static_cast<double>(v);
  // exp(v + e) - exp(v), written so that neither a huge e nor a vanishing exp(v) spoils it.
  const double spread = x.e < 1 ? d * std::expm1(x.e) : std::exp(x.value() + x.e) - d;
  auto y = enclosure_detail::function(x, v, d, spread, budget(Function::exp));
  y.overflow &= ~kMinusInfinity;
  if (x.overflow & kMinusInfinity) enclosure_detail::may_become(y, 0);
  return y;
}

template <class V>
Enclosure<V> expm1(const Enclosure<V>& x) {
  const V v = math::expm1(x.v);
  const double d = std::exp(x.value());
  const double spread = x.e < 1 ? d * std::expm1(x.e) : std::exp(x.value() + x.e) - d;
  auto y = enclosure_detail::function(x, v, d, spread, budget(Function::expm1));
  y.overflow &= ~kMinusInfinity;
  if (x.overflow & kMinusInfinity) enclosure_detail::may_become(y, -1);
  return y;
}

template <class V>
Enclosure<V> log(const Enclosure<V>& x) {
  const V v = math::log(x.v);
  const double d = 1 / x.value();
  const double spread = x.value() > x.e ? -std::log1p(-x.e / x.value()) : kInfinity;
  auto y = enclosure_detail::function(x, v, d, spread, budget(Function::log));
  if (x.overflow & kMinusInfinity) y.overflow |= kNaN;
  y.overflow &= ~kMinusInfinity;
  if (x.e > 0 && !(x.value() > x.e)) y.overflow |= kMinusInfinity | kNaN;  // of zero or of less
  return y;
}

template <class V>
Enclosure<V> tanh(const Enclosure<V>& x) {
  const V v = math::tanh(x.v);
  const double nearest = std::max(x.magnitude() - x.e, 0.0);
  const auto slope = [](double t) {
    const double c = std::cosh(std::min(t, 350.0));
    return 1 / (c * c);
  };
  auto y = enclosure_detail::function(x, v, slope(x.magnitude()), std::min(slope(nearest) * x.e, 2.0),
                                      budget(Function::tanh));
  enclosure_detail::may_saturate(y, x.overflow, -1, 1);
  return y;
}

template <class V>
Enclosure<V> erf(const Enclosure<V>& x) {
  const V v = math::erf(x.v);
  const double nearest = std::max(x.magnitude() - x.e, 0.0);
  const auto slope = [](double t) { return M_2_SQRTPI * std::exp(-t * t); };
  auto y = enclosure_detail::function(x, v, slope(x.magnitude()), std::min(slope(nearest) * x.e, 2.0),
                                      budget(Function::erf));
  enclosure_detail::may_saturate(y, x.overflow, -1, 1);
  return y;
}

// The larger of two, as IEEE compares them; Lipschitz constant 1, no rounding.
template <class V>
Enclosure<V> maximum(const Enclosure<V>& a, const Enclosure<V>& b) {
  Enclosure<V> y = a.v >= b.v || math::is_nan(a.v) ? a : b;
  if (math::is_nan(b.v)) y = b;
  y.e = std::max(a.e, b.e);
  // An overflow of either to +infinity wins; to -infinity it takes both.
  y.overflow = ((a.overflow | b.overflow) & (kPlusInfinity | kNaN)) | (a.overflow & b.overflow & kMinusInfinity);
  // Next to the kink the other one's error shows (numerics.md, section 1: within 8 deviations).
  const auto other = a.v >= b.v ? b.variance() : a.variance();
  const double apart = static_cast<double>(a.v - b.v);
  if (other > y.variance() && apart * apart < 64 * (a.variance() + b.variance())) y.s += other - y.variance();
  return y;
}

template <class V>
Enclosure<V> minimum(const Enclosure<V>& a, const Enclosure<V>& b) {
  return -maximum(-a, -b);
}

// Turns x's own errors into shared source `k`: every element made from this x errs together, once.
template <class V>
Enclosure<V> share(Enclosure<V> x, int k) {
  const double sign = x.shared[k] < 0 ? -1 : 1;
  x.shared[k] = sign * static_cast<double>(std::sqrt(x.variance()));
  for (int other = 0; other < Enclosure<V>::kSources; ++other)
    if (other != k) x.shared[other] = 0;
  x.s = 0;
  return x;
}

}  // namespace opdiff
