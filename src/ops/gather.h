// Flat source indices of a result that walks its input by strides.
#pragma once

#include <vector>

#include "base/shape.h"

namespace opdiff {

// For every element of a tensor of `shape`, row-major: first + the sum of its coordinates times `strides`.
inline std::vector<std::int64_t> gather(const Shape& shape, const Shape& strides, std::int64_t first) {
  std::vector<std::int64_t> source(static_cast<std::size_t>(element_count(shape)));
  Shape at(shape.size(), 0);
  for (std::int64_t& from : source) {
    from = first;
    for (std::size_t d = shape.size(); d-- > 0;) {
      first += strides[d];
      if (++at[d] < shape[d]) break;
      first -= strides[d] * shape[d];
      at[d] = 0;
    }
  }
  return source;
}

}  // namespace opdiff
