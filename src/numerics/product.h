// Order-free matrix products: every output is a dot product whose enclosure covers every order of summation, with FMA
// or without (Higham, section 3.1). Convolution, Gemm and MatMul all come here.
#pragma once

#include <cstdint>

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
void products(const ProductShape& shape, const Quad* a, const Quad* b, const Quad* initial, Enclosure<Quad>* out);

}  // namespace opdiff
