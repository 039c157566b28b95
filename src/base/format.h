// Binary floating-point formats as parameters: unit roundoff, range, and correct rounding from double.
// Bit-level conversions of tensors are in base/dtype.h.
#pragma once

#include <cmath>
#include <string_view>

namespace opdiff {

enum class Rounding { nearest_even, nearest_away, toward_zero };

// A radix-2 format with `digits` significant bits (hidden bit included), normal exponents
// min_exponent..max_exponent in the sense 2^e <= |x| < 2^(e+1), gradual underflow.
struct Format {
  std::string_view name;
  int digits;
  int min_exponent;
  int max_exponent;

  // u: half the distance from 1 to the next larger number.
  double unit_roundoff() const { return std::ldexp(1.0, -digits); }
  // eta: smallest positive subnormal (0 if it is below double's range; only f64 in wider arithmetic cares).
  double eta() const { return std::ldexp(1.0, min_exponent - digits + 1); }
  // lambda: smallest positive normal.
  double lambda() const { return std::ldexp(1.0, min_exponent); }
  double max_finite() const { return std::ldexp(2.0 - std::ldexp(1.0, 1 - digits), max_exponent); }

  bool operator==(const Format&) const = default;
};

inline constexpr Format kF64{"f64", 53, -1022, 1023};
inline constexpr Format kF32{"f32", 24, -126, 127};
inline constexpr Format kTF32{"tf32", 11, -126, 127};
inline constexpr Format kF16{"f16", 11, -14, 15};
inline constexpr Format kBF16{"bf16", 8, -126, 127};

// Rounds x to `format` once; overflow gives infinity under nearest rounding and the largest finite number under
// toward_zero. NaN and infinities pass through.
double round_to(double x, const Format& format, Rounding rounding = Rounding::nearest_even);

// The distance between neighbours of |x| in `format`: 2 u 2^floor(log2 |x|), at least eta.
double ulp(double x, const Format& format);

}  // namespace opdiff
