// Dual numbers: a value and its derivative along one direction, carried through every operation (forward-mode
// differentiation: Griewank and Walther, Evaluating Derivatives, chapter 3). The formulas of operators and of their
// gradients run over them, so that a law can compare the two without a step size.
#pragma once

#include <cstdint>

#include "numerics/product.h"
#include "numerics/scalar.h"

namespace opdiff {

struct Dual {
  Quad v = 0;
  Quad d = 0;  // derivative along the direction

  Dual() = default;
  Dual(Quad value) : v(value) {}                             // NOLINT: implicit, as for every scalar of the formulas
  Dual(double value) : v(value) {}                           // NOLINT
  Dual(int value) : v(value) {}                              // NOLINT
  Dual(std::int64_t value) : v(static_cast<Quad>(value)) {}  // NOLINT
  Dual(Quad value, Quad derivative) : v(value), d(derivative) {}
  Dual& operator+=(const Dual& x) {
    v += x.v;
    d += x.d;
    return *this;
  }
};

inline Dual operator-(const Dual& x) { return {-x.v, -x.d}; }
inline Dual operator+(const Dual& a, const Dual& b) { return {a.v + b.v, a.d + b.d}; }
inline Dual operator-(const Dual& a, const Dual& b) { return {a.v - b.v, a.d - b.d}; }
inline Dual operator*(const Dual& a, const Dual& b) { return {a.v * b.v, a.d * b.v + a.v * b.d}; }
inline Dual operator/(const Dual& a, const Dual& b) {
  const Quad q = a.v / b.v;
  return {q, (a.d - q * b.d) / b.v};
}
// Comparisons look at values: a kink has the derivative of the side that the formula takes.
inline bool operator<(const Dual& a, const Dual& b) { return a.v < b.v; }
inline bool operator>(const Dual& a, const Dual& b) { return a.v > b.v; }
inline bool operator<=(const Dual& a, const Dual& b) { return a.v <= b.v; }
inline bool operator>=(const Dual& a, const Dual& b) { return a.v >= b.v; }
inline bool operator==(const Dual& a, const Dual& b) { return a.v == b.v; }

inline Dual exp(const Dual& x) {
  const Quad y = math::exp(x.v);
  return {y, y * x.d};
}
inline Dual expm1(const Dual& x) { return {math::expm1(x.v), math::exp(x.v) * x.d}; }
inline Dual log(const Dual& x) { return {math::log(x.v), x.d / x.v}; }
inline Dual sqrt(const Dual& x) {
  const Quad y = math::sqrt(x.v);
  return {y, x.d / (2 * y)};
}
inline Dual tanh(const Dual& x) {
  const Quad y = math::tanh(x.v);
  return {y, (1 - y) * (1 + y) * x.d};
}
inline Dual erf(const Dual& x) {
  static const Quad two_over_sqrt_pi = 2 / math::sqrt(M_PIq);
  return {math::erf(x.v), two_over_sqrt_pi * math::exp(-x.v * x.v) * x.d};
}
inline Dual share(const Dual& x, int) { return x; }

inline void products(const ProductShape& s, const Dual* a, const Dual* b, const Dual* initial, Dual* out) {
  for (std::int64_t m = 0; m < s.m; ++m)
    for (std::int64_t n = 0; n < s.n; ++n) {
      Dual total = initial ? initial[m] : Dual();
      for (std::int64_t k = 0; k < s.k; ++k) total += a[m * s.k + k] * b[k * s.n + n];
      out[m * s.n + n] = total;
    }
}

}  // namespace opdiff
