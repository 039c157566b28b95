// Order-free matrix products: every output is a dot product whose enclosure covers every order of summation, with FMA
// or without (Higham, section 3.1). Convolution, Gemm and MatMul all come here.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "numerics/enclosure.h"
#include "numerics/working.h"

namespace opdiff {

// out[m, n] = initial[m] + sum_k a[m, k] * b[k, n], row-major, dense. `initial` (nullptr: zero) is where the
// accumulation starts, one value a row; an implementation that adds its bias at the end is another formula: pass
// nullptr and add.
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
};

void products(const ProductShape& shape, const double* a, const double* b, const double* initial, double* out);
// out += a b, the same way.
void add_products(const ProductShape& shape, const double* a, const double* b, double* out);
void products(const ProductShape& shape, const Quad* a, const Quad* b, const Quad* initial, Quad* out);
void products(const ProductShape& shape, const std::int64_t* a, const std::int64_t* b, const std::int64_t* initial,
              std::int64_t* out);
// The same bits: multiplication and addition wrap around.
inline void products(const ProductShape& shape, const std::uint64_t* a, const std::uint64_t* b,
                     const std::uint64_t* initial, std::uint64_t* out) {
  products(shape, reinterpret_cast<const std::int64_t*>(a), reinterpret_cast<const std::int64_t*>(b),
           reinterpret_cast<const std::int64_t*>(initial), reinterpret_cast<std::int64_t*>(out));
}
void products(const ProductShape& shape, const double* a, const double* b, const double* initial, Working* out);
void products(const ProductShape& shape, const double* a, const double* b, const double* initial,
              Enclosure<double>* out);
// The same with a matrix b that is made piece by piece where it is needed: rows [k0, k1) of columns [n0, n0 + width)
// into panel[(k - k0) * kPanelWidth + n - n0], the columns from `width` on zero.
inline constexpr std::int64_t kPanelWidth = 16;
using ColumnPanels =
    std::function<void(std::int64_t n0, std::int64_t width, std::int64_t k0, std::int64_t k1, double* panel)>;
// `added` (nullptr: nothing): what is added to a row's finished sums, one value a row.
void products(const ProductShape& shape, const double* a, const ColumnPanels& b, const double* initial,
              const double* added, Enclosure<double>* out);
void products(const ProductShape& shape, const Quad* a, const Quad* b, const Quad* initial, Enclosure<Quad>* out);

// A matrix by its elements that are not zero: those of row m are [starts[m], starts[m + 1]), in ascending columns.
struct SparseRows {
  std::vector<std::int64_t> starts = {0}, columns;
  std::vector<double> values;
};
// out[n, m] = initial[n] + sum_k a[m, k] b[k, n]; every b is finite, and no subnormals are flushed.
void transposed_products(const ProductShape& shape, const SparseRows& a, const double* b, const double* initial,
                         Enclosure<double>* out);

}  // namespace opdiff
