// Shapes of dense row-major tensors: counting with an overflow check, strides, broadcasting, index arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace opdiff {

using Shape = std::vector<std::int64_t>;

// Number of elements; the error names the shape when a dimension is negative or the count exceeds 2^48.
Expected<std::int64_t> checked_element_count(const Shape& shape);
// The same for shapes that were checked before.
std::int64_t element_count(const Shape& shape);
// Row-major strides in elements.
Shape strides_of(const Shape& shape);
// "[2,3,4]"; "[]" for a scalar.
std::string to_string(const Shape& shape);
// Multidirectional (numpy) broadcasting, ONNX "Broadcasting in ONNX".
Expected<Shape> broadcast_shapes(const Shape& a, const Shape& b);
// Strides that walk a tensor of shape `from` over `to`, 0 where a dimension is repeated. `to` is a broadcast of `from`.
Shape broadcast_strides(const Shape& from, const Shape& to);
// Flat index -> coordinates.
Shape unravel(std::int64_t index, const Shape& shape);
// axis in [-rank, rank) -> [0, rank); the error names axis and rank.
Expected<int> normalise_axis(std::int64_t axis, std::int64_t rank);

}  // namespace opdiff
