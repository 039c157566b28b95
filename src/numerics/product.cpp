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
static_assert(kPanelWidth == 2 * kLanes);
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));
using LaneMask = std::int64_t __attribute__((vector_size(kLanes * sizeof(double))));

// The sums of one row of a against a panel's columns, so far.
struct alignas(64) Tile {
  Lanes value[2], magnitudes[2], squares[2];
};

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void add_to_tile(std::int64_t k_count,
                                                                                               const double* a,
                                                                                               const double* panel,
                                                                                               Tile* tile) {
  const Lanes zero{};
  const LaneMask absolute = ~(LaneMask{} + (std::int64_t{1} << 63));
  Lanes sum[2] = {tile->value[0], tile->value[1]};
  Lanes size[2] = {tile->magnitudes[0], tile->magnitudes[1]};
  Lanes square[2] = {tile->squares[0], tile->squares[1]};
  for (std::int64_t k = 0; k < k_count; ++k) {
    const Lanes factor = zero + a[k];
    for (int half = 0; half < 2; ++half) {
      Lanes column;
      __builtin_memcpy(&column, panel + k * kPanelWidth + half * kLanes, sizeof column);
      const Lanes p = factor * column;
      sum[half] += p;
      size[half] += reinterpret_cast<Lanes>(reinterpret_cast<LaneMask>(p) & absolute);
      const Lanes both = p * p + sum[half] * sum[half];
      square[half] += reinterpret_cast<Lanes>(reinterpret_cast<LaneMask>(both) & (p != zero));
    }
  }
  for (int half = 0; half < 2; ++half) {
    tile->value[half] = sum[half];
    tile->magnitudes[half] = size[half];
    tile->squares[half] = square[half];
  }
}

constexpr std::int64_t kPanelRows = 256;  // of a panel that stays in the first cache

// Gives the sums of out[m, n] to take(m, n, sums).
template <class Take>
void dot_sums(const ProductShape& shape, const double* a, const ColumnPanels& b, const double* initial,
              const Take& take) {
  std::vector<double> panel(static_cast<std::size_t>(std::min(shape.k, kPanelRows) * kPanelWidth));
  std::vector<Tile> tiles(static_cast<std::size_t>(shape.m));
  for (std::int64_t n = 0; n < shape.n; n += kPanelWidth) {
    const std::int64_t width = std::min(kPanelWidth, shape.n - n);
    for (std::int64_t m = 0; m < shape.m; ++m) {
      const Lanes start = Lanes{} + (initial ? initial[m] : 0), size = Lanes{} + (initial ? std::fabs(initial[m]) : 0);
      tiles[static_cast<std::size_t>(m)] = {{start, start}, {size, size}, {Lanes{}, Lanes{}}};
    }
    for (std::int64_t k = 0; k < shape.k; k += kPanelRows) {
      const std::int64_t end = std::min(k + kPanelRows, shape.k);
      b(n, width, k, end, panel.data());
      for (std::int64_t m = 0; m < shape.m; ++m)
        add_to_tile(end - k, a + m * shape.k + k, panel.data(), &tiles[static_cast<std::size_t>(m)]);
    }
    for (std::int64_t m = 0; m < shape.m; ++m) {
      const Tile& tile = tiles[static_cast<std::size_t>(m)];
      for (std::int64_t j = 0; j < width; ++j)
        take(m, n + j,
             DotSums<double>{tile.value[j / kLanes][j % kLanes], tile.magnitudes[j / kLanes][j % kLanes],
                             tile.squares[j / kLanes][j % kLanes]});
    }
  }
}

int lowest_of(const double* x, std::int64_t count, std::int64_t stride) {
  int quantum = kNoQuantum;
  for (std::int64_t k = 0; k < count; ++k)
    if (const double v = x[k * stride]; v != 0) quantum = std::min(quantum, lowest_bit(v));
  return quantum;
}

constexpr std::int64_t kLook = 4;

// The lowest bits of the rows of a matrix: products are multiples of the product of two such.
class RowQuanta {
 public:
  RowQuanta(const double* x, const ProductShape& shape) : x_(x), k_(shape.k) {
    for (std::int64_t m = 0; m < shape.m; ++m) bound_.push_back(lowest_of(x + m * k_, std::min(kLook, k_), 1));
    exact_.assign(bound_.size(), false);
  }
  // Not below of(m); kNoQuantum where all that was looked at is zero.
  int at_most(std::int64_t m) const { return bound_[static_cast<std::size_t>(m)]; }
  int of(std::int64_t m) {
    const auto place = static_cast<std::size_t>(m);
    if (!exact_[place]) {
      bound_[place] = lowest_of(x_ + m * k_, k_, 1);
      exact_[place] = true;
    }
    return bound_[place];
  }

 private:
  const double* x_;
  std::int64_t k_;
  std::vector<int> bound_;
  std::vector<bool> exact_;
};

// The same of the columns of panels, those of one panel at a time.
class ColumnQuanta {
 public:
  ColumnQuanta(const ColumnPanels& b, const ProductShape& shape) : b_(b), n_(shape.n), k_(shape.k) {}
  int at_most(std::int64_t n) {
    look(n);
    return bound_[n % kPanelWidth];
  }
  int of(std::int64_t n) {
    look(n);
    int& quantum = exact_[n % kPanelWidth];
    if (quantum == kUnknown) quantum = lowest_of(column(n), k_, kPanelWidth);
    return quantum;
  }
  // Column n, with a step of kPanelWidth.
  const double* column(std::int64_t n) {
    look(n);
    if (whole_.empty()) {
      whole_.resize(static_cast<std::size_t>(k_ * kPanelWidth));
      b_(first_, std::min(kPanelWidth, n_ - first_), 0, k_, whole_.data());
    }
    return whole_.data() + n % kPanelWidth;
  }

 private:
  static constexpr int kUnknown = -kNoQuantum;

  void look(std::int64_t n) {
    const std::int64_t first = n / kPanelWidth * kPanelWidth;
    if (first == first_) return;
    first_ = first;
    whole_.clear();
    double head[kLook * kPanelWidth];
    const std::int64_t rows = std::min(kLook, k_);
    b_(first, std::min(kPanelWidth, n_ - first), 0, rows, head);
    for (std::int64_t j = 0; j < kPanelWidth; ++j) {
      bound_[j] = lowest_of(head + j, rows, kPanelWidth);
      exact_[j] = kUnknown;
    }
  }

  const ColumnPanels& b_;
  std::int64_t n_, k_, first_ = -1;
  int bound_[kPanelWidth] = {}, exact_[kPanelWidth] = {};
  std::vector<double> whole_;
};

// Turns the sums of one output into its enclosure, under the profile in scope. `terms` is the length of the dot
// product, the initial value included; the magnitudes are of the finite terms.
template <class V>
class Encloser {
 public:
  using Square = typename Enclosure<V>::Square;

  explicit Encloser(double terms) : a_(arithmetic()), terms_(terms), gamma_(gamma(terms, a_.u_sum)) {
    const Square u = a_.u_sum, eta = a_.eta_sum;
    rounding_ = u * u / 3;
    underflow_ = terms * eta * eta / 12;
  }

  bool is_exact(int quantum, double magnitudes) const {
    return !a_.flush_to_zero && sums_exactly(quantum, magnitudes, a_.sum);
  }

  Enclosure<V> operator()(V value, const DotSums<Square>& sums, int quantum) const {
    Enclosure<V> y;
    y.v = value;
    if (!math::is_finite(value)) {
      y.overflow = beside_infinity(enclosure_detail::non_finite(y), sums.magnitudes, terms_, a_);
      return y;
    }
    if (is_exact(quantum, sums.magnitudes)) return enclosure_detail::rounded_sum(y);
    y.e = (gamma_ * sums.magnitudes + terms_ * a_.eta_sum / 2) * kOutward;
    y.s = rounding_ * sums.squares + underflow_;
    if (a_.flush_to_zero) {
      const Square lambda = a_.lambda_sum;
      y.e += terms_ * a_.lambda_sum;
      y.s += terms_ * lambda * lambda;
    }
    y.overflow = sum_overflow(y.value(), sums.magnitudes, y.e, a_.max_sum);
    return enclosure_detail::rounded_sum(y);
  }

 private:
  const Arithmetic& a_;
  double terms_, gamma_;
  Square rounding_, underflow_;
};

int product_quantum(int row, int column, const double* initial) {
  int quantum = row == kNoQuantum || column == kNoQuantum ? kNoQuantum : row + column;
  if (initial && *initial != 0) quantum = std::min(quantum, lowest_bit(*initial));
  return quantum;
}

// Subnormals of the inner format, read as zero.
void flush(double* x, std::int64_t count, double lambda) {
  for (std::int64_t i = 0; i < count; ++i)
    if (std::fabs(x[i]) < lambda) x[i] = 0;
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
  products(
      s, a,
      [&](std::int64_t n0, std::int64_t width, std::int64_t k0, std::int64_t k1, double* panel) {
        for (std::int64_t k = k0; k < k1; ++k, panel += kPanelWidth) {
          std::copy_n(b + k * s.n + n0, width, panel);
          std::fill(panel + width, panel + kPanelWidth, 0.0);
        }
      },
      initial, out);
}

void products(const ProductShape& s, const double* a, const ColumnPanels& b, const double* initial,
              Enclosure<double>* out) {
  RowQuanta rows(a, s);
  ColumnQuanta columns(b, s);
  const Encloser<double> enclose(static_cast<double>(s.k) + (initial ? 1 : 0));
  std::vector<double> magnitudes;
  const bool flushes = arithmetic().flush_to_zero;
  if (flushes) magnitudes.resize(static_cast<std::size_t>(s.m * s.n));
  dot_sums(s, a, b, initial, [&](std::int64_t m, std::int64_t n, DotSums<double> x) {
    const double* start = initial ? initial + m : nullptr;
    if (std::isinf(x.value)) {
      x.magnitudes = start && std::isfinite(*start) ? std::fabs(*start) : 0;
      const double* column = columns.column(n);
      for (std::int64_t k = 0; k < s.k; ++k)
        if (const double p = a[m * s.k + k] * column[k * kPanelWidth]; std::isfinite(p)) x.magnitudes += std::fabs(p);
    }
    // A bound first: most sums are not exact, and the whole row and column need not be looked at then.
    int quantum = product_quantum(rows.at_most(m), columns.at_most(n), start);
    if (enclose.is_exact(quantum, x.magnitudes)) quantum = product_quantum(rows.of(m), columns.of(n), start);
    out[m * s.n + n] = enclose(x.value, x, quantum);
    if (flushes) magnitudes[static_cast<std::size_t>(m * s.n + n)] = x.magnitudes;
  });
  if (!flushes) return;
  const double lambda = arithmetic().lambda_sum;
  std::vector<double> flushed(a, a + s.m * s.k);
  flush(flushed.data(), s.m * s.k, lambda);
  const ColumnPanels flushed_b = [&](std::int64_t n0, std::int64_t width, std::int64_t k0, std::int64_t k1,
                                     double* panel) {
    b(n0, width, k0, k1, panel);
    flush(panel, (k1 - k0) * kPanelWidth, lambda);
  };
  dot_sums(s, flushed.data(), flushed_b, initial, [&](std::int64_t m, std::int64_t n, const DotSums<double>& without) {
    const std::int64_t i = m * s.n + n;
    const double lost = magnitudes[static_cast<std::size_t>(i)] - without.magnitudes;
    if (!(lost > 0 && lost < kInfinity)) return;
    out[i].e += lost * kOutward;
    out[i].s += lost * lost;
  });
}

void products(const ProductShape& s, const Quad* a, const Quad* b, const Quad* initial, Enclosure<Quad>* out) {
  const Encloser<Quad> enclose(static_cast<double>(s.k) + (initial ? 1 : 0));
  for_each_dot(s, out, [&](std::int64_t m, std::int64_t n) {
    Quad total = initial ? initial[m] : 0;
    DotSums<long double> sums{0, math::is_finite(total) ? std::fabs(static_cast<double>(total)) : 0, 0};
    int quantum = total != 0 ? lowest_bit(static_cast<double>(total)) : kNoQuantum;
    for (std::int64_t k = 0; k < s.k; ++k) {
      const double x = static_cast<double>(a[m * s.k + k]), y = static_cast<double>(b[k * s.n + n]);
      if (x == 0 || y == 0) {
        total += a[m * s.k + k] * b[k * s.n + n];  // NaN for 0 * infinity
        continue;
      }
      const Quad p = a[m * s.k + k] * b[k * s.n + n];
      total += p;
      if (!math::is_finite(p)) continue;
      const auto partial = static_cast<long double>(total), product = static_cast<long double>(p);
      sums.magnitudes += static_cast<double>(std::fabs(product));
      sums.squares += partial * partial + product * product;
      quantum = std::min(quantum, lowest_bit(x) + lowest_bit(y));
    }
    return enclose(total, sums, quantum);
  });
}

}  // namespace opdiff
