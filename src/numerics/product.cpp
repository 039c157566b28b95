#include "numerics/product.h"

#include <cblas.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/machines.h"
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

  DotSums<double> operator[](std::int64_t j) const {
    return {value[j / kLanes][j % kLanes], magnitudes[j / kLanes][j % kLanes], squares[j / kLanes][j % kLanes]};
  }
};

[[gnu::always_inline]] inline Lanes magnitude(Lanes x) {
  return reinterpret_cast<Lanes>(reinterpret_cast<LaneMask>(x) & ~(LaneMask{} + (std::int64_t{1} << 63)));
}

// One term of each of a row's sums.
[[gnu::always_inline]] inline void add_term(double factor, const double* row, Tile* tile) {
  const Lanes zero{}, factors = zero + factor;
  for (int half = 0; half < 2; ++half) {
    Lanes column;
    __builtin_memcpy(&column, row + half * kLanes, sizeof column);
    const Lanes p = factors * column;
    tile->value[half] += p;
    tile->magnitudes[half] += magnitude(p);
    const Lanes both = p * p + tile->value[half] * tile->value[half];
    tile->squares[half] += reinterpret_cast<Lanes>(reinterpret_cast<LaneMask>(both) & (p != zero));
  }
}

OPDIFF_FOR_EACH_MACHINE void add_to_tile(std::int64_t k_count, const double* a, const double* panel, Tile* tile) {
  Tile sums = *tile;
  for (std::int64_t k = 0; k < k_count; ++k) add_term(a[k], panel + k * kPanelWidth, &sums);
  *tile = sums;
}

// Terms `first` to `last` of a row; the panel begins at row k0 of its matrix.
OPDIFF_FOR_EACH_MACHINE void add_some_to_tile(const SparseRows& a, std::int64_t first, std::int64_t last,
                                              std::int64_t k0, const double* panel, Tile* tile) {
  Tile sums = *tile;
  for (std::int64_t i = first; i < last; ++i)
    add_term(a.values[static_cast<std::size_t>(i)], panel + (a.columns[static_cast<std::size_t>(i)] - k0) * kPanelWidth,
             &sums);
  *tile = sums;
}

OPDIFF_FOR_EACH_MACHINE bool all_finite(const double* panel, std::int64_t rows) {
  Lanes sum{};
  for (std::int64_t i = 0; i < rows * kPanelWidth; i += kLanes) {
    Lanes x;
    __builtin_memcpy(&x, panel + i, sizeof x);
    sum += x * 0;  // NaN of what is not finite
  }
  bool finite = true;
  for (int lane = 0; lane < kLanes; ++lane) finite = finite && sum[lane] == 0;
  return finite;
}

// The left matrix of a product: dense, sparse, or both; a zero times what is not finite needs the dense one.
struct Left {
  const double* dense;
  const SparseRows* sparse;
  std::int64_t k;

  // At least its elements that are not zero, k ascending.
  std::span<const double> row(std::int64_t m) const {
    if (!sparse) return {dense + m * k, static_cast<std::size_t>(k)};
    return std::span(sparse->values).subspan(start(m), start(m + 1) - start(m));
  }
  // Of element i of row(m).
  std::int64_t column(std::int64_t m, std::size_t i) const {
    return sparse ? sparse->columns[start(m) + i] : static_cast<std::int64_t>(i);
  }
  std::size_t start(std::int64_t m) const {
    return static_cast<std::size_t>(sparse->starts[static_cast<std::size_t>(m)]);
  }
  // The first entry of a sparse row whose column is not below `column`.
  std::int64_t entry(std::int64_t m, std::int64_t column) const {
    const auto row = sparse->columns.begin();
    const auto end = row + static_cast<std::ptrdiff_t>(start(m + 1));
    return std::lower_bound(row + static_cast<std::ptrdiff_t>(start(m)), end, column) - row;
  }
};

// Where out[m, n] is and what its sum starts with: row by row, or as out[n, m] with an initial value for each n.
struct Placement {
  ProductShape shape;
  bool transposed;
  const double* initial;
  const double* added = nullptr;  // to the finished sums of row m

  std::int64_t index(std::int64_t m, std::int64_t n) const { return transposed ? n * shape.m + m : m * shape.n + n; }
  const double* start(std::int64_t m, std::int64_t n) const {
    return initial ? initial + (transposed ? n : m) : nullptr;
  }
};

constexpr std::int64_t kPanelRows = 256;  // of a panel that stays in the first cache

// Gives the sums of out[m, n0 ...] to take(m, n0, width, tile).
template <class Take>
void dot_sums(const Left& a, const ColumnPanels& b, const Placement& place, const Take& take) {
  const ProductShape& shape = place.shape;
  std::vector<double> panel(static_cast<std::size_t>(std::min(shape.k, kPanelRows) * kPanelWidth));
  std::vector<Tile> tiles(static_cast<std::size_t>(shape.m));
  for (std::int64_t n = 0; n < shape.n; n += kPanelWidth) {
    const std::int64_t width = std::min(kPanelWidth, shape.n - n);
    for (std::int64_t m = 0; m < shape.m; ++m) {
      Tile& tile = tiles[static_cast<std::size_t>(m)] = {};
      for (std::int64_t j = 0; place.initial && j < width; ++j) {
        const double start = *place.start(m, n + j);
        tile.value[j / kLanes][j % kLanes] = 0 + start;  // no sum begins with -0
        tile.magnitudes[j / kLanes][j % kLanes] = std::fabs(start);
      }
    }
    for (std::int64_t k = 0; k < shape.k; k += kPanelRows) {
      const std::int64_t end = std::min(k + kPanelRows, shape.k);
      b(n, width, k, end, panel.data());
      const bool skips_zeros = a.sparse && (!a.dense || all_finite(panel.data(), end - k));
      for (std::int64_t m = 0; m < shape.m; ++m) {
        Tile* const tile = &tiles[static_cast<std::size_t>(m)];
        if (skips_zeros)
          add_some_to_tile(*a.sparse, a.entry(m, k), a.entry(m, end), k, panel.data(), tile);
        else
          add_to_tile(end - k, a.dense + m * shape.k + k, panel.data(), tile);
      }
    }
    for (std::int64_t m = 0; m < shape.m; ++m) take(m, n, width, tiles[static_cast<std::size_t>(m)]);
  }
}

int lowest_of(const double* x, std::int64_t count, std::int64_t stride) {
  int quantum = kNoQuantum;
  for (std::int64_t k = 0; k < count; ++k)
    if (const double v = x[k * stride]; v != 0) quantum = std::min(quantum, lowest_bit(v));
  return quantum;
}

constexpr std::int64_t kLook = 4;  // elements, at least, for a bound

// The lowest bits of the rows of a matrix: products are multiples of the product of two such.
class RowQuanta {
 public:
  RowQuanta(const Left& a, std::int64_t rows) : a_(a) {
    for (std::int64_t m = 0; m < rows; ++m)
      bound_.push_back(lowest_of(a.row(m).first(std::min<std::size_t>(kLook, a.row(m).size()))));
    exact_.assign(bound_.size(), false);
  }
  // Not below of(m); kNoQuantum where all that was looked at is zero.
  int at_most(std::int64_t m) const { return bound_[static_cast<std::size_t>(m)]; }
  int of(std::int64_t m) {
    const auto place = static_cast<std::size_t>(m);
    if (!exact_[place]) {
      bound_[place] = lowest_of(a_.row(m));
      exact_[place] = true;
    }
    return bound_[place];
  }

 private:
  static int lowest_of(std::span<const double> row) { return opdiff::lowest_of(row.data(), std::ssize(row), 1); }

  const Left& a_;
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
  // The largest of at_most() for the first `width` columns of n's panel.
  int at_most_of_all(std::int64_t n, std::int64_t width) {
    look(n);
    return *std::max_element(bound_, bound_ + width);
  }
  int of(std::int64_t n) {
    look(n);
    const std::int64_t j = n % kPanelWidth;
    if (!exact_[j]) {
      bound_[j] = lowest_of(column(n), k_, kPanelWidth);
      exact_[j] = true;
    }
    return bound_[j];
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
  void look(std::int64_t n) {
    const std::int64_t first = n / kPanelWidth * kPanelWidth;
    if (first == first_) return;
    first_ = first;
    whole_.clear();
    const std::int64_t rows = std::min(std::max(kLook, k_ / 64), k_);
    std::vector<double> head(static_cast<std::size_t>(rows * kPanelWidth));
    b_(first, std::min(kPanelWidth, n_ - first), 0, rows, head.data());
    for (std::int64_t j = 0; j < kPanelWidth; ++j) {
      bound_[j] = lowest_of(head.data() + j, rows, kPanelWidth);
      exact_[j] = false;
    }
  }

  const ColumnPanels& b_;
  std::int64_t n_, k_, first_ = -1;
  int bound_[kPanelWidth] = {};
  bool exact_[kPanelWidth] = {};
  std::vector<double> whole_;
};

// What the radius and the variance of a sum are made of, under the profile in scope.
struct SumErrors {
  double gamma, half_eta;      // radius: gamma magnitudes + half_eta
  double rounding, underflow;  // variance: rounding squares + underflow
  double max;
  double step, largest;  // of an addition after the sum: its unit roundoff, and where it overflows
};

// The enclosures of a tile's sums that are rounded and overflow nowhere: `plain` where that is so.
struct alignas(64) TileEnclosures {
  Lanes value[2], radius[2], variance[2];
  LaneMask plain[2];
};

// `exact`: the largest magnitudes of which nothing may be rounded. `added` (nullptr: nothing) is added to each sum, as
// Enclosure's + does it.
OPDIFF_FOR_EACH_MACHINE void enclose_tile(const Tile& tile, const SumErrors& errors, double exact, const double* added,
                                          TileEnclosures* result) {
  for (int half = 0; half < 2; ++half) {
    Lanes value = tile.value[half];
    Lanes radius = (errors.gamma * tile.magnitudes[half] + errors.half_eta) * kOutward;
    Lanes variance = errors.rounding * tile.squares[half] + errors.underflow;
    LaneMask plain = (tile.magnitudes[half] > exact) & (tile.magnitudes[half] + radius <= errors.max);
    if (added) {
      value += *added;
      const Lanes size = magnitude(value), typical = errors.step * size;
      radius = (radius + errors.step * (size + radius)) * kOutward;
      variance += typical * typical / 3;
      plain &= size + radius <= errors.largest;
    }
    result->value[half] = value;
    result->radius[half] = radius;
    result->variance[half] = variance;
    result->plain[half] = plain;
  }
}

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

  SumErrors errors() const {
    return {gamma_,
            terms_ * a_.eta_sum / 2,
            static_cast<double>(rounding_),
            static_cast<double>(underflow_),
            a_.max_sum,
            a_.u,
            a_.max};
  }
  // Magnitudes above this are of no sum that is_exact(): its quantum is at most `quantum`.
  double exact_up_to(int quantum) const { return exact_limit(quantum, a_.sum); }

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
  add_products(s, a, b, out);
}

void add_products(const ProductShape& s, const double* a, const double* b, double* out) {
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

namespace {

void enclose_products(const Left& a, const ColumnPanels& b, const Placement& place, Enclosure<double>* out) {
  const ProductShape& s = place.shape;
  RowQuanta rows(a, s.m);
  ColumnQuanta columns(b, s);
  const Encloser<double> enclose(static_cast<double>(s.k) + (place.initial ? 1 : 0));
  const SumErrors errors = enclose.errors();
  const bool narrows = arithmetic().inner.digits < arithmetic().sum.digits;
  std::vector<double> magnitudes;
  const bool flushes = arithmetic().flush_to_zero;
  if (flushes) magnitudes.resize(static_cast<std::size_t>(s.m * s.n));
  const auto one = [&](std::int64_t m, std::int64_t n, DotSums<double> x) {
    const double* const start = place.start(m, n);
    if (std::isinf(x.value)) {
      x.magnitudes = start && std::isfinite(*start) ? std::fabs(*start) : 0;
      const double* column = columns.column(n);
      const std::span<const double> row = a.row(m);
      for (std::size_t i = 0; i < row.size(); ++i)
        if (const double p = row[i] * column[a.column(m, i) * kPanelWidth]; std::isfinite(p))
          x.magnitudes += std::fabs(p);
    }
    // A bound first: most sums are not exact, and the whole row and column need not be looked at then.
    int quantum = product_quantum(rows.at_most(m), columns.at_most(n), start);
    if (enclose.is_exact(quantum, x.magnitudes)) quantum = product_quantum(rows.of(m), columns.of(n), start);
    if (flushes) magnitudes[static_cast<std::size_t>(place.index(m, n))] = x.magnitudes;
    return enclose(x.value, x, quantum);
  };
  dot_sums(a, b, place, [&](std::int64_t m, std::int64_t n, std::int64_t width, const Tile& tile) {
    TileEnclosures fast;
    const double* const added = place.added ? place.added + m : nullptr;
    enclose_tile(tile, errors,
                 enclose.exact_up_to(product_quantum(rows.at_most(m), columns.at_most_of_all(n, width), nullptr)),
                 narrows ? nullptr : added, &fast);
    Enclosure<double>* y = out + place.index(m, n);
    const std::int64_t step = place.transposed ? s.m : 1;
    for (std::int64_t j = 0; j < width; ++j, y += step) {
      const std::int64_t half = j / kLanes, lane = j % kLanes;
      if (!fast.plain[half][lane] || flushes) {
        *y = one(m, n + j, tile[j]);
        if (added && !flushes) *y = *y + Enclosure<double>(*added);
        continue;
      }
      *y = {};
      y->v = fast.value[half][lane];
      y->e = fast.radius[half][lane];
      y->s = fast.variance[half][lane];
      if (narrows) {
        *y = enclosure_detail::rounded_sum(*y);
        if (added) *y = *y + Enclosure<double>(*added);
      }
    }
  });
  if (!flushes) return;
  const double lambda = arithmetic().lambda_sum;
  std::vector<double> flushed(a.dense, a.dense + s.m * s.k);
  flush(flushed.data(), s.m * s.k, lambda);
  const ColumnPanels flushed_b = [&](std::int64_t n0, std::int64_t width, std::int64_t k0, std::int64_t k1,
                                     double* panel) {
    b(n0, width, k0, k1, panel);
    flush(panel, (k1 - k0) * kPanelWidth, lambda);
  };
  dot_sums({flushed.data(), nullptr, s.k}, flushed_b, place,
           [&](std::int64_t m, std::int64_t n, std::int64_t width, const Tile& without) {
             for (std::int64_t j = 0; j < width; ++j) {
               const std::int64_t i = place.index(m, n + j);
               const double lost = magnitudes[static_cast<std::size_t>(i)] - without[j].magnitudes;
               if (!(lost > 0 && lost < kInfinity)) continue;
               out[i].e += lost * kOutward;
               out[i].s += lost * lost;
             }
           });
  for (std::int64_t i = 0; place.added && i < s.m * s.n; ++i)
    out[i] = out[i] + Enclosure<double>(place.added[place.transposed ? i % s.m : i / s.n]);
}

ColumnPanels panels_of(const double* b, std::int64_t columns) {
  return [=](std::int64_t n0, std::int64_t width, std::int64_t k0, std::int64_t k1, double* panel) {
    for (std::int64_t k = k0; k < k1; ++k, panel += kPanelWidth) {
      std::copy_n(b + k * columns + n0, width, panel);
      std::fill(panel + width, panel + kPanelWidth, 0.0);
    }
  };
}

// Of a matrix that is mostly zeros; nullopt of others.
std::optional<SparseRows> sparse(const ProductShape& s, const double* a) {
  const auto count = static_cast<std::size_t>(s.m * s.k);
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < count; ++i) zeros += a[i] == 0;
  if (zeros * 2 < count || count == 0) return std::nullopt;
  SparseRows rows;
  rows.columns.reserve(count - zeros);
  rows.values.reserve(count - zeros);
  for (std::int64_t m = 0; m < s.m; ++m, a += s.k) {
    for (std::int64_t k = 0; k < s.k; ++k) {
      if (a[k] == 0) continue;
      rows.columns.push_back(k);
      rows.values.push_back(a[k]);
    }
    rows.starts.push_back(std::ssize(rows.values));
  }
  return rows;
}

}  // namespace

void products(const ProductShape& s, const double* a, const double* b, const double* initial, Enclosure<double>* out) {
  products(s, a, panels_of(b, s.n), initial, nullptr, out);
}

void products(const ProductShape& s, const double* a, const ColumnPanels& b, const double* initial, const double* added,
              Enclosure<double>* out) {
  const std::optional<SparseRows> some = arithmetic().flush_to_zero ? std::nullopt : sparse(s, a);
  enclose_products({a, some ? &*some : nullptr, s.k}, b, {s, false, initial, added}, out);
}

void transposed_products(const ProductShape& s, const SparseRows& a, const double* b, const double* initial,
                         Enclosure<double>* out) {
  OPDIFF_CHECK(!arithmetic().flush_to_zero);
  enclose_products({nullptr, &a, s.k}, panels_of(b, s.n), {s, true, initial}, out);
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
