// What Max, Min, ReduceMax and ReduceMin share: which of two elements wins, what the extremum of nothing is, and what
// else is made of a NaN.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/op.h"

namespace opdiff {

struct Largest {
  template <class X>
  static X of(const X& a, const X& b) {
    return maximum(a, b);
  }
  template <class X>
  static bool beats(const X& a, const X& b) {
    return a > b || (a != a && b == b);
  }
};

struct Smallest {
  template <class X>
  static X of(const X& a, const X& b) {
    return minimum(a, b);
  }
  template <class X>
  static bool beats(const X& a, const X& b) {
    return a < b || (a != a && b == b);
  }
};

// Neither beats the other: equal numbers, or two NaN.
template <class X>
bool ties(const X& a, const X& b) {
  return a == b || (a != a && b != b);
}

// What every element beats or ties with: of Largest minus infinity, false, or the least integer.
template <class Choice, class X>
X extremum_of_nothing(DType dtype) {
  constexpr bool is_least = std::is_same_v<Choice, Largest>;
  if constexpr (std::is_integral_v<X>) {
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - 8 * dtype_size(dtype));
    if (is_unsigned_integer(dtype)) return static_cast<X>(is_least ? 0 : all);
    const auto largest = static_cast<std::int64_t>(all >> 1);
    return static_cast<X>(is_least ? -largest - 1 : largest);
  } else {
    if (dtype == DType::boolean) return X(is_least ? 0.0 : 1.0);
    return X(is_least ? -kInfinity : kInfinity);
  }
}

// What kernels that go over numbers one by one make of a NaN.
struct NanHabit {
  const char* name;
  double (*pick)(double so_far, double next);  // where one of the two is NaN
};
inline constexpr NanHabit kNanHabits[] = {
    {"NaN is ignored", [](double so_far, double next) { return std::isnan(so_far) ? next : so_far; }},
    {"NaN gives way to the number after it", [](double, double next) { return next; }},
    {"NaN counts only as the first", [](double so_far, double) { return so_far; }},
};

template <class Choice>
double extremum(double so_far, double next, const NanHabit& habit) {
  return std::isnan(so_far) || std::isnan(next) ? habit.pick(so_far, next) : Choice::of(so_far, next);
}

}  // namespace opdiff
