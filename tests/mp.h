// MPFR numbers of 200 bits: what tests call the exact value.
#pragma once

#include <quadmath.h>

#include <boost/multiprecision/mpfr.hpp>

namespace opdiff::mp {

using Number =
    boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<75>, boost::multiprecision::et_off>;

inline Number of(double x) { return Number(x); }
inline Number of(__float128 x) {
  const double high = static_cast<double>(x);
  if (!std::isfinite(high)) return Number(high);
  int exponent = 0;
  x = frexpq(x, &exponent);  // subnormal parts would be lost
  const double first = static_cast<double>(x), second = static_cast<double>(x - first);
  return ldexp(Number(first) + Number(second) + Number(static_cast<double>(x - first - second)), exponent);
}

inline Number expm1(const Number& x) {
  Number y;
  mpfr_expm1(y.backend().data(), x.backend().data(), MPFR_RNDN);
  return y;
}
inline Number erf(const Number& x) {
  Number y;
  mpfr_erf(y.backend().data(), x.backend().data(), MPFR_RNDN);
  return y;
}

}  // namespace opdiff::mp
