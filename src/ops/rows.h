// Softmax and its kin work on rows: the elements that share all coordinates but those of `axis` (from opset 13), or the
// trailing axes from `axis` on, flattened (before).
#pragma once

#include "ops/call.h"

namespace opdiff {

struct Rows {
  std::int64_t outer = 1, length = 1, inner = 1;  // element (o, k, i) is at (o * length + k) * inner + i
};

inline Expected<int> row_axis(const Call& call) {
  return normalise_axis(call.integer("axis", call.opset() < 13 ? 1 : -1), call.rank(0));
}

inline Rows rows_of(const Call& call) {
  const Shape& shape = call.shape(0);
  const auto axis = static_cast<std::size_t>(*row_axis(call));
  Rows rows;
  for (std::size_t d = 0; d < axis; ++d) rows.outer *= shape[d];
  rows.length = shape[axis];
  for (std::size_t d = axis + 1; d < shape.size(); ++d) (call.opset() < 13 ? rows.length : rows.inner) *= shape[d];
  return rows;
}

// Axes whose coordinates tell rows apart.
inline std::vector<int> row_group_axes(const Call& call) {
  const int axis = *row_axis(call);
  std::vector<int> axes;
  for (int d = 0; d < static_cast<int>(call.rank(0)); ++d)
    if (d < axis || (call.opset() >= 13 && d > axis)) axes.push_back(d);
  return axes;
}

}  // namespace opdiff
