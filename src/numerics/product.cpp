#include "numerics/product.h"

#include <cblas.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "numerics/sum.h"

namespace opdiff {
namespace {

// Per output: the value, the sum of magnitudes, and the squares that the variance needs: sum of p_k^2 and of S_k^2 over
// the terms that are not zero (adding zero rounds nothing).
template <class Square>
struct DotSums {
  double value, magnitudes;
  Square squares;
};

constexpr int kLanes = 8;
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));
using LaneMask = std::int64_t __attribute__((vector_size(kLanes * sizeof(double))));

// One row of a against 2 * kLanes columns of b; `b` has row stride `stride`.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void dot_tile(
    std::int64_t k_count, const double* a, const double* b, std::int64_t stride, double initial, double* value,
    double* magnitudes, double* squares) {
  const Lanes zero{};
  const LaneMask absolute = ~(LaneMask{} + (std::int64_t{1} << 63));
  Lanes sum[2] = {zero + initial, zero + initial};
  Lanes size[2] = {zero + std::fabs(initial), zero + std::fabs(initial)};
  Lanes square[2] = {zero, zero};
  for (std::int64_t k = 0; k < k_count; ++k) {
    const Lanes factor = zero + a[k];
    for (int half = 0; half < 2; ++half) {
      Lanes column;
      __builtin_memcpy(&column, b + k * stride + half * kLanes, sizeof column);
      const Lanes p = factor * column;
      sum[half] += p;
      size[half] += reinterpret_cast<Lanes>(reinterpret_cast<LaneMask>(p) & absolute);
      const Lanes both = p * p + sum[half] * sum[half];
      square[half] += reinterpret_cast<Lanes>(reinterpret_cast<LaneMask>(both) & (p != zero));
    }
  }
  __builtin_memcpy(value, sum, sizeof sum);
  __builtin_memcpy(magnitudes, size, sizeof size);
  __builtin_memcpy(squares, square, sizeof square);
}

// Gives the sums of out[m, n] to take(m, n, sums).
template <class Take>
void dot_sums(const ProductShape& shape, const double* a, const double* b, const double* initial, const Take& take) {
  constexpr std::int64_t kTile = 2 * kLanes;
  std::vector<double> panel(static_cast<std::size_t>(shape.k * kTile));
  double value[kTile], magnitudes[kTile], squares[kTile];
  for (std::int64_t n = 0; n < shape.n; n += kTile) {
    const std::int64_t width = std::min(kTile, shape.n - n);
    const double* columns = b + n;
    std::int64_t stride = shape.n;
    if (shape.m > 4 || width < kTile) {  // pack: padded with zeros, close in memory
      for (std::int64_t k = 0; k < shape.k; ++k) {
        double* row = panel.data() + k * kTile;
        std::copy_n(b + k * shape.n + n, width, row);
        std::fill(row + width, row + kTile, 0.0);
      }
      columns = panel.data();
      stride = kTile;
    }
    for (std::int64_t m = 0; m < shape.m; ++m) {
      dot_tile(shape.k, a + m * shape.k, columns, stride, initial ? initial[m] : 0, value, magnitudes, squares);
      for (std::int64_t j = 0; j < width; ++j) take(m, n + j, DotSums<double>{value[j], magnitudes[j], squares[j]});
    }
  }
}

// The lowest bits of the rows of a matrix, or of its columns: products are multiples of the product of the two.
class Quanta {
 public:
  // `count` vectors of `length` elements: element k of vector i is x[i * step + k * stride].
  Quanta(const double* x, std::int64_t count, std::int64_t length, std::int64_t step, std::int64_t stride)
      : x_(x), length_(length), step_(step), stride_(stride), bound_(static_cast<std::size_t>(count), kNoQuantum) {
    exact_.assign(static_cast<std::size_t>(count), false);
    for (std::int64_t i = 0; i < count; ++i) bound_[static_cast<std::size_t>(i)] = lowest(i, std::min(kLook, length));
  }

  // Not below of(i); kNoQuantum where all that was looked at is zero.
  int at_most(std::int64_t i) const { return bound_[static_cast<std::size_t>(i)]; }
  int of(std::int64_t i) const {
    const auto place = static_cast<std::size_t>(i);
    if (!exact_[place]) {
      bound_[place] = lowest(i, length_);
      exact_[place] = true;
    }
    return bound_[place];
  }

 private:
  static constexpr std::int64_t kLook = 4;

  int lowest(std::int64_t i, std::int64_t length) const {
    int quantum = kNoQuantum;
    for (std::int64_t k = 0; k < length; ++k)
      if (const double v = x_[i * step_ + k * stride_]; v != 0) quantum = std::min(quantum, lowest_bit(v));
    return quantum;
  }

  const double* x_;
  std::int64_t length_, step_, stride_;
  mutable std::vector<int> bound_;
  mutable std::vector<bool> exact_;
};

// Turns the sums of one output into its enclosure. `terms` is the length of the dot product, the initial value
// included.
template <class V>
Enclosure<V> enclose(V value, const DotSums<typename Enclosure<V>::Square>& sums, double terms, int quantum) {
  const Arithmetic& a = arithmetic();
  Enclosure<V> y;
  y.v = value;
  if (!math::is_finite(value)) return y;
  if (!a.flush_to_zero && sums_exactly(quantum, sums.magnitudes, a.sum)) return enclosure_detail::rounded_sum(y);
  y.e = (gamma(terms, a.u_sum) * sums.magnitudes + terms * a.eta_sum / 2) * kOutward;
  using Square = typename Enclosure<V>::Square;
  const Square u = a.u_sum, eta = a.eta_sum, lambda = a.lambda_sum;
  y.s = u * u / 3 * sums.squares + terms * eta * eta / 12;
  if (a.flush_to_zero) {
    y.e += terms * a.lambda_sum;
    y.s += terms * lambda * lambda;
  }
  y.overflow = sum_overflow(y.value(), sums.magnitudes, y.e, a.max_sum);
  return enclosure_detail::rounded_sum(y);
}

int product_quantum(int row, int column, const double* initial) {
  int quantum = row == kNoQuantum || column == kNoQuantum ? kNoQuantum : row + column;
  if (initial && *initial != 0) quantum = std::min(quantum, lowest_bit(*initial));
  return quantum;
}

// Copy of x with the subnormals of the inner format read as zero; `changed` tells whether there were any.
std::vector<double> flushed(const double* x, std::int64_t count, double lambda, bool* changed) {
  std::vector<double> y(x, x + count);
  for (double& v : y)
    if (v != 0 && std::fabs(v) < lambda) {
      v = 0;
      *changed = true;
    }
  return y;
}

template <class T, class Load>
void for_each_dot(const ProductShape& shape, T* out, const Load& dot) {
  for (std::int64_t m = 0; m < shape.m; ++m)
    for (std::int64_t n = 0; n < shape.n; ++n) out[m * shape.n + n] = dot(m, n);
}

}  // namespace

void products(const ProductShape& s, const double* a, const double* b, const double* initial, double* out) {
  for (std::int64_t m = 0; m < s.m; ++m) std::fill_n(out + m * s.n, s.n, initial ? initial[m] : 0.0);
  if (s.m == 0 || s.n == 0 || s.k == 0) return;
  static std::once_flag once;
  std::call_once(once,
                 [] { openblas_set_num_threads(1); });  // our own pool splits the work; bits must not depend on it
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(s.m), static_cast<int>(s.n),
              static_cast<int>(s.k), 1.0, a, static_cast<int>(s.k), b, static_cast<int>(s.n), 1.0, out,
              static_cast<int>(s.n));
}

void products(const ProductShape& s, const Quad* a, const Quad* b, const Quad* initial, Quad* out) {
  for_each_dot(s, out, [&](std::int64_t m, std::int64_t n) {
    Quad total = initial ? initial[m] : 0;
    for (std::int64_t k = 0; k < s.k; ++k) total += a[m * s.k + k] * b[k * s.n + n];
    return total;
  });
}

void products(const ProductShape& s, const std::int64_t* a, const std::int64_t* b, const std::int64_t* initial,
              std::int64_t* out) {
  for_each_dot(s, out, [&](std::int64_t m, std::int64_t n) {
    auto total = static_cast<std::uint64_t>(initial ? initial[m] : 0);
    for (std::int64_t k = 0; k < s.k; ++k)
      total += static_cast<std::uint64_t>(a[m * s.k + k]) * static_cast<std::uint64_t>(b[k * s.n + n]);
    return static_cast<std::int64_t>(total);
  });
}

void products(const ProductShape& s, const double* a, const double* b, const double* initial, Working* out) {
  std::vector<double> left, right;
  for_each_dot(s, out, [&](std::int64_t m, std::int64_t n) {
    left.clear();
    right.clear();
    if (initial) {
      left.push_back(initial[m]);
      right.push_back(1);
    }
    for (std::int64_t k = 0; k < s.k; ++k) {
      left.push_back(a[m * s.k + k]);
      right.push_back(b[k * s.n + n]);
    }
    return Working::round(sum_in_order(left, right, working_order(), arithmetic().sum));
  });
}

void products(const ProductShape& s, const double* a, const double* b, const double* initial, Enclosure<double>* out) {
  const Quanta rows(a, s.m, s.k, s.k, 1), columns(b, s.n, s.k, 1, s.n);
  const double terms = static_cast<double>(s.k) + (initial ? 1 : 0);
  std::vector<double> magnitudes;
  const bool flushes = arithmetic().flush_to_zero;
  if (flushes) magnitudes.resize(static_cast<std::size_t>(s.m * s.n));
  dot_sums(s, a, b, initial, [&](std::int64_t m, std::int64_t n, const DotSums<double>& x) {
    const double* start = initial ? initial + m : nullptr;
    // A bound first: most sums are not exact, and the whole row and column need not be looked at then.
    int quantum = product_quantum(rows.at_most(m), columns.at_most(n), start);
    if (sums_exactly(quantum, x.magnitudes, arithmetic().sum))
      quantum = product_quantum(rows.of(m), columns.of(n), start);
    out[m * s.n + n] = enclose(x.value, x, terms, quantum);
    if (flushes) magnitudes[static_cast<std::size_t>(m * s.n + n)] = x.magnitudes;
  });
  if (!flushes) return;
  bool changed = false;
  const std::vector<double> fa = flushed(a, s.m * s.k, arithmetic().lambda_sum, &changed);
  const std::vector<double> fb = flushed(b, s.k * s.n, arithmetic().lambda_sum, &changed);
  if (!changed) return;
  dot_sums(s, fa.data(), fb.data(), initial, [&](std::int64_t m, std::int64_t n, const DotSums<double>& without) {
    const std::int64_t i = m * s.n + n;
    const double lost = magnitudes[static_cast<std::size_t>(i)] - without.magnitudes;
    out[i].e += lost * kOutward;
    out[i].s += lost * lost;
  });
}

void products(const ProductShape& s, const Quad* a, const Quad* b, const Quad* initial, Enclosure<Quad>* out) {
  for_each_dot(s, out, [&](std::int64_t m, std::int64_t n) {
    Quad total = initial ? initial[m] : 0;
    DotSums<long double> sums{0, std::fabs(static_cast<double>(total)), 0};
    int quantum = total != 0 ? lowest_bit(static_cast<double>(total)) : kNoQuantum;
    for (std::int64_t k = 0; k < s.k; ++k) {
      const double x = static_cast<double>(a[m * s.k + k]), y = static_cast<double>(b[k * s.n + n]);
      if (x == 0 || y == 0) {
        total += a[m * s.k + k] * b[k * s.n + n];  // NaN for 0 * infinity
        continue;
      }
      const Quad p = a[m * s.k + k] * b[k * s.n + n];
      total += p;
      const auto partial = static_cast<long double>(total), product = static_cast<long double>(p);
      sums.magnitudes += static_cast<double>(std::fabs(product));
      sums.squares += partial * partial + product * product;
      quantum = std::min(quantum, lowest_bit(x) + lowest_bit(y));
    }
    return enclose(total, sums, static_cast<double>(s.k) + (initial ? 1 : 0), quantum);
  });
}

}  // namespace opdiff
