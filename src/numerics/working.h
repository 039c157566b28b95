// Working is an honest implementation's scalar: a number that is rounded to the profile's inner format after every
// step. Sums run in a chosen order. The oracle is attacked from below with it: whatever Working computes must pass.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/profile.h"
#include "numerics/scalar.h"

namespace opdiff {

// How the Working sums and products of this thread accumulate.
struct SumOrder {
  enum class Kind { sequential, reversed, pairwise, lanes, shuffled, wide } kind = Kind::sequential;
  int lanes = 1;           // for `lanes`: that many running sums, folded pairwise at the end
  bool fused = false;      // products are not rounded before they are added (FMA)
  std::uint64_t seed = 0;  // for `shuffled`
};

SumOrder& working_order();

struct Working {
  double v = 0;

  Working() = default;
  Working(double value) : v(value) {}  // NOLINT: implicit, as for every scalar of the formulas
  Working(int value) : v(value) {}     // NOLINT
  static Working round(double exact) {
    const Arithmetic& a = arithmetic();
    double r = a.inner == kF32   ? static_cast<double>(static_cast<float>(exact))
               : a.inner == kF64 ? exact
                                 : round_to(exact, a.inner);
    if (a.flush_to_zero && std::fabs(r) < a.lambda) r = std::copysign(0.0, r);
    return Working(r);
  }
  double value() const { return v; }
};

inline Working operator-(Working x) { return Working(-x.v); }
inline Working operator+(Working a, Working b) { return Working::round(a.v + b.v); }
inline Working operator-(Working a, Working b) { return Working::round(a.v - b.v); }
inline Working operator*(Working a, Working b) { return Working::round(a.v * b.v); }
inline Working operator/(Working a, Working b) { return Working::round(a.v / b.v); }
inline bool operator==(Working a, Working b) { return a.v == b.v; }
inline bool operator<(Working a, Working b) { return a.v < b.v; }
inline bool operator>(Working a, Working b) { return a.v > b.v; }
inline Working sqrt(Working x) { return Working::round(std::sqrt(x.v)); }
inline Working exp(Working x) { return Working::round(std::exp(x.v)); }
inline Working expm1(Working x) { return Working::round(std::expm1(x.v)); }
inline Working log(Working x) { return Working::round(std::log(x.v)); }
inline Working tanh(Working x) { return Working::round(std::tanh(x.v)); }
inline Working erf(Working x) { return Working::round(std::erf(x.v)); }
inline Working share(Working x, int) { return x; }

}  // namespace opdiff
