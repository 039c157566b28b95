#include "base/format.h"

#include <algorithm>

namespace opdiff {

double ulp(double x, const Format& format) {
  if (x == 0 || !std::isfinite(x)) return format.eta();
  const int exponent = std::max(std::ilogb(x), format.min_exponent);
  return std::ldexp(1.0, exponent - format.digits + 1);
}

double round_to(double x, const Format& format, Rounding rounding) {
  if (x == 0 || !std::isfinite(x)) return x;
  if (format == kF64) return x;
  const double quantum = ulp(x, format);
  // x / quantum is exact (a power of two) and below 2^53, so one rounding happens, in nearbyint's place.
  const double scaled = std::fabs(x) / quantum;
  double rounded = std::floor(scaled);
  const double rest = scaled - rounded;
  switch (rounding) {
    case Rounding::nearest_even:
      if (rest > 0.5 || (rest == 0.5 && std::fmod(rounded, 2.0) != 0)) rounded += 1;
      break;
    case Rounding::nearest_away:
      if (rest >= 0.5) rounded += 1;
      break;
    case Rounding::toward_zero: break;
  }
  double result = rounded * quantum;
  if (result > format.max_finite()) result = rounding == Rounding::toward_zero ? format.max_finite() : HUGE_VAL;
  return std::copysign(result, x);
}

}  // namespace opdiff
