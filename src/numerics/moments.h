// Mean and variance of exact numbers, for operators that take statistics (normalisations). Two-pass is the definition;
// one-pass is a named algorithm (docs/numerics.md, section 5): it cancels where the mean is large. An operator follows
// it in a formula beyond those that formulas() names and declares
//   NamedAlgorithm{"one-pass variance", [&call](const Profile& p) { return enclose(op(), call, p, kOnePass); }, {}}
#pragma once

#include <cstdint>

#include "numerics/sum.h"

namespace opdiff {

template <class T>
struct Moments {
  T mean, variance;  // biased: divided by the count
};

template <class T>
T squared(const T& x) {
  return x * x;
}
// The factors err together.
template <class V>
Enclosure<V> squared(const Enclosure<V>& x) {
  Enclosure<V> y = x * x;
  y.s += 2 * typename Enclosure<V>::Square(x.value()) * x.value() * x.s;
  return y;
}

// E[(x - E[x])^2]. x(k): element k, 0 <= k < count, exact. The mean is shared source `source` (numerics/enclosure.h):
// its error is the same in every term, and sum (x - E[x]) = 0 cancels it.
template <class T, class X>
Moments<T> two_pass_moments(std::int64_t count, X x, int source) {
  const T n(static_cast<double>(count));
  Sum<T> sum;
  for (std::int64_t k = 0; k < count; ++k) sum.add(T(x(k)));
  const T mean = share(sum.result() / n, source);
  Sum<T> squares;
  for (std::int64_t k = 0; k < count; ++k) squares.add(squared(T(x(k)) - mean));
  return {mean, squares.result() / n};
}

// E[x^2] - E[x]^2, not below 0.
template <class T, class X>
Moments<T> one_pass_moments(std::int64_t count, X x) {
  const T n(static_cast<double>(count));
  Sum<T> sum, squares;
  for (std::int64_t k = 0; k < count; ++k) {
    const T v(x(k));
    sum.add(v);
    squares.add(v * v);
  }
  const T mean = sum.result() / n;
  return {mean, maximum(squares.result() / n - squared(mean), T(0))};
}

}  // namespace opdiff
