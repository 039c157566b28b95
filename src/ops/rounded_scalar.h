// Roundings beside those of a formula's steps: of scalars that an implementation works out beforehand, in more digits
// than its steps have (1 - beta, 1 / (1 - ratio)), and of what one kernel writes for another.
#pragma once

#include "ops/op.h"

namespace opdiff {

// The scalar as the steps use it: rounded once.
template <class T>
T scalar_of(Quad value) {
  if constexpr (std::is_same_v<T, Quad> || std::is_same_v<T, Dual> || std::is_same_v<T, Enclosure<Quad>>)
    return T(value) * T(1);
  else
    return T(static_cast<double>(value)) * T(1);
}

// What a kernel writes to memory before the next one reads it: rounded to 16-bit storage, where that is narrower.
template <class T>
T stored(const T& x, DType storage) {
  if (!profiles_differ(storage)) return x;
  const ProfileScope scope(inner_storage(storage));
  return x * T(1);
}

}  // namespace opdiff
