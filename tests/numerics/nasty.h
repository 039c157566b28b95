// Numbers that break arithmetic: every exponent, subnormal, next to overflow, powers of two and their neighbours.
#pragma once

#include "base/format.h"
#include "base/rng.h"

namespace opdiff {

// A finite number of `format`.
inline double nasty(Rng& rng, const Format& format) {
  const double sign = rng.chance(0.5) ? -1 : 1;
  double x = 0;
  switch (rng.integer(0, 7)) {
    case 0: x = rng.normal(); break;
    case 1:
      x = std::ldexp(rng.uniform(1, 2), static_cast<int>(rng.integer(format.min_exponent, format.max_exponent)));
      break;
    case 2: x = format.lambda() * rng.uniform(); break;
    case 3: x = format.max_finite() * rng.uniform(0.4, 1); break;
    case 4: x = std::ldexp(1.0, static_cast<int>(rng.integer(-8, 8))); break;
    case 5: x = 1 + static_cast<double>(rng.integer(-3, 3)) * 2 * format.unit_roundoff(); break;
    case 6: x = rng.normal() * 20; break;
    default: x = static_cast<double>(rng.integer(0, 9)); break;
  }
  x = round_to(sign * x, format);
  return std::isfinite(x) ? x : sign * format.max_finite();
}

}  // namespace opdiff
