// Matrix products of the operators: cut into blocks of rows for the pool of threads, transposed copies.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "numerics/parallel.h"
#include "numerics/product.h"

namespace opdiff {

// Columns x rows, from row-major rows x columns.
template <class E>
std::vector<E> transposed(const E* x, std::int64_t rows, std::int64_t columns) {
  std::vector<E> result(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) result[static_cast<std::size_t>(c * rows + r)] = x[r * columns + c];
  return result;
}

// products() over `batch` pairs; `operands` gives the pair (a, b) of batch n. `initial` is one row of m values for all.
template <class E, class T, class Operands>
void batched_products(std::int64_t batch, const ProductShape& shape, const Operands& operands, const E* initial,
                      T* out) {
  constexpr std::int64_t kRows = 64;  // fixed: bits must not depend on the number of threads
  const std::int64_t blocks = (shape.m + kRows - 1) / kRows;
  parallel_for(batch * blocks, [&](std::int64_t piece) {
    const std::int64_t n = piece / blocks, first = piece % blocks * kRows;
    const std::pair<const E*, const E*> pair = operands(n);
    products({std::min(kRows, shape.m - first), shape.n, shape.k}, pair.first + first * shape.k, pair.second,
             initial ? initial + first : nullptr, out + (n * shape.m + first) * shape.n);
  });
}

}  // namespace opdiff
