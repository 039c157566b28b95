#include "base/shape.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace opdiff {

Expected<std::int64_t> checked_element_count(const Shape& shape) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 48;
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return make_error("shape {} has a negative dimension", to_string(shape));
    if (dimension == 0)
      empty = true;
    else if (count > kLimit / dimension)
      return make_error("shape {} has more than 2^48 elements", to_string(shape));
    else
      count *= dimension;
  }
  return empty ? 0 : count;
}

std::int64_t element_count(const Shape& shape) {
  const auto count = checked_element_count(shape);
  OPDIFF_CHECK(count.has_value());
  return *count;
}

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

Expected<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (std::size_t k = 0; k < result.size(); ++k) {
    const std::int64_t da = k < a.size() ? a[a.size() - 1 - k] : 1;
    const std::int64_t db = k < b.size() ? b[b.size() - 1 - k] : 1;
    if (da != db && da != 1 && db != 1)
      return make_error("shapes {} and {} do not broadcast", to_string(a), to_string(b));
    result[result.size() - 1 - k] = da == 1 ? db : da;
  }
  return result;
}

Shape broadcast_strides(const Shape& from, const Shape& to) {
  const Shape dense = strides_of(from);
  Shape strides(to.size(), 0);
  for (std::size_t k = 0; k < from.size(); ++k) {
    const std::size_t source = from.size() - 1 - k;
    if (from[source] != 1) strides[to.size() - 1 - k] = dense[source];
  }
  return strides;
}

Shape unravel(std::int64_t index, const Shape& shape) {
  Shape coordinates(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    coordinates[axis] = index % shape[axis];
    index /= shape[axis];
  }
  return coordinates;
}

Expected<int> normalise_axis(std::int64_t axis, std::int64_t rank) {
  if (axis < -rank || axis >= rank) return make_error("axis {} is outside [-{}, {})", axis, rank, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace opdiff
