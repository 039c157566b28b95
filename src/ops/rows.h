// Softmax and its kin work on rows: the elements that share all coordinates but those of `axis` (from opset 13), or the
// trailing axes from `axis` on, flattened (before).
#pragma once

#include "ops/op.h"

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

// Calls f(length, at, largest) for every row that has elements: at(k) is the flat index of its element k, `largest` the
// largest element of `x` in it.
template <class Exact, class F>
void for_each_row(const Call& call, std::span<const Exact> x, F f) {
  const Rows rows = rows_of(call);
  if (rows.length == 0) return;
  for (std::int64_t o = 0; o < rows.outer; ++o)
    for (std::int64_t i = 0; i < rows.inner; ++i) {
      const auto at = [&](std::int64_t k) { return static_cast<std::size_t>((o * rows.length + k) * rows.inner + i); };
      Exact largest = x[at(0)];
      for (std::int64_t k = 1; k < rows.length; ++k) largest = maximum(largest, x[at(k)]);
      f(rows.length, at, largest);
    }
}

// One input of `shape`, its last axis longer now and then; most samples have an axis.
inline Sample sample_rows(SampleContext& c, std::string_view op, Shape shape) {
  if (c.rng().chance(0.3)) shape.back() = c.extent(1, 300);
  Sample s = c.make(op, {c.tensor(shape)});
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (c.rng().chance(0.7) || (s.opset < 13 && rank < 2))
    s.node.attributes["axis"] = c.rng().integer(s.opset < 11 ? 0 : -rank, rank - 1);
  return s;
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
