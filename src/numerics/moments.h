// Mean and variance of exact numbers, for operators that take statistics (normalisations). Two-pass is the definition;
// one-pass is a named algorithm (docs/numerics.md, section 5): it cancels where the mean is large. An operator follows
// it in a formula beyond those that formulas() names and declares
//   NamedAlgorithm{"one-pass variance", [&call](const Profile& p) { return enclose(op(), call, p, kOnePass); }, {}}
#pragma once

#include <cstdint>

#include "numerics/accumulating.h"
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

// Scalars that follow an arithmetic's roundings; to the others all formulas of the same value are one.
template <class T>
inline constexpr bool rounds = std::is_same_v<T, Working> || requires(T x) { x.overflow; };

// One step of Welford's mean: before + (x - before) / count.
inline Working running_mean(const Working& before, const Working& x, double count) {
  return before + (x - before) / Working(count);
}
// What the mean before was rounded by is damped to (count - 1) / count of it.
template <class V>
Enclosure<V> running_mean(const Enclosure<V>& before, const Enclosure<V>& x, double count) {
  const double kept = (count - 1) / count;
  Enclosure<V> start(before.v);
  if (!before.exact()) start.e = std::numeric_limits<double>::min();  // no number of the format: each step rounds
  Enclosure<V> mean = start + (x - start) / Enclosure<V>(count);
  mean.e += before.e * kept;
  mean.s += before.s * kept * kept;
  mean.overflow |= before.overflow;
  return mean;
}

// Welford's running statistics: M = M + (x - mean before) (x - mean after), kept in the format of sums.
template <class T, class X>
  requires rounds<T>
Moments<T> running_moments(std::int64_t count, X x) {
  if (count == 0) return {T(0) / T(0), T(0) / T(0)};
  T mean(x(0));  // less 0, by 1
  Sum<T> squares;
  {
    const ProfileScope scope(accumulating(arithmetic()));
    for (std::int64_t k = 1; k < count; ++k) {
      const T element(x(k)), before = mean;
      mean = running_mean(before, element, static_cast<double>(k + 1));
      squares.add((element - before) * (element - mean));
    }
  }
  const T n(static_cast<double>(count));
  if constexpr (std::is_same_v<T, Working>)
    return {T::round(mean.v), squares.result() / n};
  else
    return {enclosure_detail::rounded_sum(mean), squares.result() / n};
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
