// Einsum's equation, read against the shapes of its operands: which index each axis runs over, and how far.
// ops/contraction.h adds up over them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/shape.h"

namespace opdiff {

// Indices are numbered: letters in the order of their codes (A is 0, a is 26), then the axes of the ellipsis.
struct Subscripts {
  std::vector<std::vector<int>> operands;  // the index of each axis
  std::vector<int> output;
  Shape extents;  // by index; 1 where it is not used

  Shape output_shape() const;
};

// Errors name the attribute and its value. An axis of one element is repeated along an index that is longer elsewhere.
Expected<Subscripts> read_subscripts(const std::string& equation, std::span<const Shape> shapes);

// The axes of one tensor by index: an index that has several runs along the diagonal; axes of one element are left out.
struct Indexing {
  std::vector<int> indices;
  Shape strides;  // of each, in elements

  bool has(int index) const;
  std::int64_t stride(int index) const;  // 0: does not depend on it
};
Indexing indexing_of(const std::vector<int>& axes, const Shape& shape);

// Flat places in a tensor while `indices` run, the last one fastest.
std::vector<std::int64_t> places(const Indexing& tensor, const std::vector<int>& indices, const Shape& extents);

}  // namespace opdiff
