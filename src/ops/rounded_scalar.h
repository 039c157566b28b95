// Scalars that an implementation works out beforehand, in more digits than its steps have: 1 - beta, 1 / (1 - ratio).
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

}  // namespace opdiff
