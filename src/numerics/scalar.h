// The exact scalars beneath every evaluation: double, and Quad (binary128) where f64 itself is under test; one set of
// elementary functions over both, in namespace `math`.
#pragma once

#include <quadmath.h>

#include <cmath>
#include <cstdint>

namespace opdiff {

using Quad = __float128;

namespace math {

inline double abs(double x) { return std::fabs(x); }
inline double sqrt(double x) { return std::sqrt(x); }
inline double exp(double x) { return std::exp(x); }
inline double expm1(double x) { return std::expm1(x); }
inline double log(double x) { return std::log(x); }
inline double log1p(double x) { return std::log1p(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double erf(double x) { return std::erf(x); }
inline bool is_finite(double x) { return std::isfinite(x); }
inline bool is_nan(double x) { return std::isnan(x); }

inline Quad abs(Quad x) { return fabsq(x); }
inline Quad sqrt(Quad x) { return sqrtq(x); }
inline Quad exp(Quad x) { return expq(x); }
inline Quad expm1(Quad x) { return expm1q(x); }
inline Quad log(Quad x) { return logq(x); }
inline Quad log1p(Quad x) { return log1pq(x); }
inline Quad tanh(Quad x) { return tanhq(x); }
inline Quad erf(Quad x) { return erfq(x); }
inline bool is_finite(Quad x) { return finiteq(x) != 0; }
inline bool is_nan(Quad x) { return isnanq(x) != 0; }

}  // namespace math

// Formulas call these unqualified, whatever their scalar.
using math::erf;
using math::exp;
using math::expm1;
using math::log;
using math::sqrt;
using math::tanh;

inline double share(double x, int) { return x; }
inline Quad share(Quad x, int) { return x; }

// The larger and the smaller of two as IEEE 754-2019 maximum and minimum order them: NaN wins. Enclosure has its own.
template <class T>
T maximum(const T& a, const T& b) {
  if (a != a) return a;
  if (b != b) return b;
  return a < b ? b : a;
}
template <class T>
T minimum(const T& a, const T& b) {
  if (a != a) return a;
  if (b != b) return b;
  return b < a ? b : a;
}

// Unit roundoff of the scalar in which centres are computed, relative to which rho is derived (docs/numerics.md).
template <class V>
inline constexpr double kUnitRoundoff = 0x1p-53;
template <>
inline constexpr double kUnitRoundoff<Quad> = 0x1p-113;

}  // namespace opdiff
