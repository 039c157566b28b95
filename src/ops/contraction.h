// Sums over indices of products of several tensors (Einsum, and its gradient), in the ways in which implementations do
// them: pair by pair, where every step's result is rounded, or in one sum. Equations are read by ops/subscripts.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "numerics/accumulating.h"
#include "ops/frame.h"
#include "ops/matrix.h"
#include "ops/subscripts.h"

namespace opdiff {

// Pair by pair an index that only one of the two has, and nobody else needs, is summed before they are multiplied. In
// one sum each product is rounded (numpy; torch where it multiplies and adds up afterwards).
enum class ContractionOrder { smallest_first, from_the_left, from_the_right, outer_first, one_sum };
inline constexpr std::array<std::string_view, 5> kContractionOrders = {
    "pair by pair, the smallest result first", "pair by pair from the left", "pair by pair from the right",
    "pair by pair, the outer ones first", "all products, then one sum"};

// Orders with a larger intermediate result, or a longer single sum over all, are left out (a second of enclosures, a
// gigabyte): the smallest result first stands for them.
inline constexpr double kMostProducts = 0x1p24;

// A tensor on its way through a contraction.
template <class T>
struct Factor {
  using Exact = typename Frame<T>::Exact;
  Indexing indexing;
  std::span<const Exact> exact;  // an input
  std::vector<T> rounded;        // or what a step made

  bool is_input() const { return rounded.empty(); }
  T at(std::int64_t place) const {
    const auto i = static_cast<std::size_t>(place);
    return is_input() ? T(exact[i]) : rounded[i];
  }
};

namespace contraction_detail {

template <class T>
inline constexpr bool kEncloses = false;
template <class V>
inline constexpr bool kEncloses<Enclosure<V>> = true;

using Indices = std::vector<int>;

inline bool contains(const Indices& indices, int index) {
  return std::find(indices.begin(), indices.end(), index) != indices.end();
}

inline double count(const Indices& indices, const Shape& extents) {
  double n = 1;
  for (const int index : indices) n *= static_cast<double>(extents[static_cast<std::size_t>(index)]);
  return n;
}

inline Indexing dense(const Indices& indices, const Shape& extents) {
  Shape shape;
  for (const int index : indices) shape.push_back(extents[static_cast<std::size_t>(index)]);
  return {indices, strides_of(shape)};
}

// What becomes of the indices of two tensors that are multiplied while those of `wanted` stay.
struct Pairing {
  Indices batch, rows, columns, summed;
  Indices result() const {
    Indices all = batch;
    all.insert(all.end(), rows.begin(), rows.end());
    all.insert(all.end(), columns.begin(), columns.end());
    return all;
  }
};

inline Pairing pairing_of(const Indexing& x, const Indexing& y, const Indices& wanted) {
  Pairing p;
  for (const int index : x.indices)
    (!contains(wanted, index) ? p.summed : y.has(index) ? p.batch : p.rows).push_back(index);
  for (const int index : y.indices)
    if (!x.has(index)) (contains(wanted, index) ? p.columns : p.summed).push_back(index);
  return p;
}

// Elements of equal value carry the same rounding error: they were computed from equal numbers, or nearly always so.
struct Alike {
  std::vector<std::pair<std::int64_t, int>> members;  // place in the sum, sign
};

template <class T, class At>
std::vector<Alike> alike(std::int64_t n, const At& at) {
  std::vector<std::int64_t> order;
  for (std::int64_t k = 0; k < n; ++k)
    if (at(k).s > 0 && math::is_finite(at(k).v)) order.push_back(k);
  const auto size = [&](std::int64_t k) { return at(k).magnitude(); };
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return size(a) < size(b); });
  std::vector<Alike> groups;
  for (std::size_t i = 0, j = 0; i < order.size(); i = j) {
    while (j < order.size() && size(order[j]) == size(order[i])) ++j;
    if (j - i < 2) continue;
    Alike group;
    for (std::size_t k = i; k < j; ++k) group.members.emplace_back(order[k], at(order[k]).v < 0 ? -1 : 1);
    groups.push_back(std::move(group));
  }
  return groups;
}

// What is added to the variance of a sum of products because errors of one side's elements are alike.
template <class Square, class Error, class Weight>
Square common_errors(const std::vector<Alike>& groups, const Error& error, const Weight& weight) {
  Square extra = 0;
  for (const Alike& group : groups) {
    Square total = 0, squares = 0, variance = 0;
    for (const auto& [k, sign] : group.members) {
      const Square w = weight(k);
      total += sign * w;
      squares += w * w;
      variance = std::max(variance, Square(error(k)));
    }
    extra += variance * std::max(total * total - squares, Square(0));
  }
  return extra;
}

// One matrix product of rounded operands; x(m, k), y(k, n).
template <class T, class X, class Y>
void rounded_products(const ProductShape& shape, const X& x, const Y& y, T* out) {
  using Square = typename T::Square;
  // The terms of a sum live in the format that it is accumulated in.
  const Arithmetic wide = accumulating(arithmetic());
  std::vector<std::vector<Alike>> columns;
  for (std::int64_t n = 0; n < shape.n; ++n)
    columns.push_back(alike<T>(shape.k, [&](std::int64_t k) { return y(k, n); }));
  for (std::int64_t m = 0; m < shape.m; ++m) {
    const std::vector<Alike> row = alike<T>(shape.k, [&](std::int64_t k) { return x(m, k); });
    for (std::int64_t n = 0; n < shape.n; ++n) {
      Sum<T> sum;
      {
        const ProfileScope scope(wide);
        for (std::int64_t k = 0; k < shape.k; ++k) sum.add(x(m, k) * y(k, n));
      }
      T& result = out[m * shape.n + n] = sum.result();
      result.s += common_errors<Square>(
          row, [&](std::int64_t k) { return x(m, k).s; }, [&](std::int64_t k) { return Square(y(k, n).value()); });
      result.s += common_errors<Square>(
          columns[static_cast<std::size_t>(n)], [&](std::int64_t k) { return y(k, n).s; },
          [&](std::int64_t k) { return Square(x(m, k).value()); });
    }
  }
}

template <class T>
Factor<T> multiply(const Factor<T>& x, const Factor<T>& y, const Indices& wanted, const Shape& extents) {
  using Exact = typename Factor<T>::Exact;
  const Pairing p = pairing_of(x.indexing, y.indexing, wanted);
  const auto x_batch = places(x.indexing, p.batch, extents), x_rows = places(x.indexing, p.rows, extents),
             x_summed = places(x.indexing, p.summed, extents);
  const auto y_batch = places(y.indexing, p.batch, extents), y_columns = places(y.indexing, p.columns, extents),
             y_summed = places(y.indexing, p.summed, extents);
  const auto batches = static_cast<std::int64_t>(x_batch.size());
  const ProductShape shape{std::ssize(x_rows), std::ssize(y_columns), std::ssize(x_summed)};
  Factor<T> result{dense(p.result(), extents), {}, {}};
  result.rounded.resize(static_cast<std::size_t>(batches * shape.m * shape.n));
  if constexpr (kEncloses<T>) {
    if (!x.is_input() || !y.is_input()) {
      parallel_for(batches, [&](std::int64_t b) {
        const auto i = static_cast<std::size_t>(b);
        rounded_products<T>(
            shape,
            [&](std::int64_t m, std::int64_t k) {
              return x.at(x_batch[i] + x_rows[static_cast<std::size_t>(m)] + x_summed[static_cast<std::size_t>(k)]);
            },
            [&](std::int64_t k, std::int64_t n) {
              return y.at(y_batch[i] + y_summed[static_cast<std::size_t>(k)] + y_columns[static_cast<std::size_t>(n)]);
            },
            result.rounded.data() + b * shape.m * shape.n);
      });
      return result;
    }
  }
  const auto value = [](const Factor<T>& factor, std::int64_t place) -> Exact {
    const auto i = static_cast<std::size_t>(place);
    if constexpr (std::is_same_v<T, Working>)
      return factor.is_input() ? factor.exact[i] : factor.rounded[i].v;
    else if constexpr (kEncloses<T>)
      return factor.exact[i];
    else
      return factor.is_input() ? factor.exact[i] : factor.rounded[i];
  };
  std::vector<Exact> left, right;
  left.reserve(static_cast<std::size_t>(batches * shape.m * shape.k));
  right.reserve(static_cast<std::size_t>(batches * shape.k * shape.n));
  for (const std::int64_t b : x_batch)
    for (const std::int64_t m : x_rows)
      for (const std::int64_t k : x_summed) left.push_back(value(x, b + m + k));
  for (const std::int64_t b : y_batch)
    for (const std::int64_t k : y_summed)
      for (const std::int64_t n : y_columns) right.push_back(value(y, b + k + n));
  batched_products(
      batches, shape,
      [&](std::int64_t b) {
        return std::pair<const Exact*, const Exact*>(left.data() + b * shape.m * shape.k,
                                                     right.data() + b * shape.k * shape.n);
      },
      static_cast<const Exact*>(nullptr), result.rounded.data());
  return result;
}

// The sum over every index that is not in `wanted`.
template <class T>
Factor<T> sum_over_others(Factor<T> x, const Indices& wanted, const Shape& extents) {
  Indices kept, summed;
  for (const int index : x.indexing.indices) (contains(wanted, index) ? kept : summed).push_back(index);
  if (summed.empty()) return x;
  const auto starts = places(x.indexing, kept, extents), steps = places(x.indexing, summed, extents);
  Factor<T> result{dense(kept, extents), {}, std::vector<T>(starts.size())};
  parallel_for(std::ssize(starts), [&](std::int64_t i) {
    Sum<T> sum;
    for (const std::int64_t step : steps) sum.add(x.at(starts[static_cast<std::size_t>(i)] + step));
    result.rounded[static_cast<std::size_t>(i)] = sum.result();
  });
  return result;
}

// The sum over all indices that are not in `wanted` of the products of all factors.
template <class T>
Factor<T> sum_of_all(const std::vector<Factor<T>>& factors, const Indices& wanted, const Shape& extents) {
  Indices kept, summed;
  for (const Factor<T>& factor : factors)
    for (const int index : factor.indexing.indices)
      if (Indices& indices = contains(wanted, index) ? kept : summed; !contains(indices, index))
        indices.push_back(index);
  std::vector<std::vector<std::int64_t>> starts, steps;
  for (const Factor<T>& factor : factors) {
    starts.push_back(places(factor.indexing, kept, extents));
    steps.push_back(places(factor.indexing, summed, extents));
  }
  Factor<T> result{dense(kept, extents), {}, std::vector<T>(starts[0].size())};
  parallel_for(std::ssize(starts[0]), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    std::vector<T> products(steps[0].size());
    Sum<T> sum;
    for (std::size_t s = 0; s < products.size(); ++s) {
      T& product = products[s] = factors[0].at(starts[0][at] + steps[0][s]);
      for (std::size_t f = 1; f < factors.size(); ++f) product = product * factors[f].at(starts[f][at] + steps[f][s]);
      sum.add(product);
    }
    T& total = result.rounded[at] = sum.result();
    if constexpr (kEncloses<T>) {
      const auto product = [&](std::int64_t s) { return products[static_cast<std::size_t>(s)]; };
      total.s += common_errors<typename T::Square>(
          alike<T>(std::ssize(products), product), [&](std::int64_t s) { return product(s).s; },
          [](std::int64_t) { return typename T::Square(1); });
    }
  });
  return result;
}

// The indices that must outlive the product of factors i and j.
template <class T>
Indices outliving(const std::vector<Factor<T>>& factors, std::size_t i, std::size_t j, Indices wanted) {
  for (std::size_t f = 0; f < factors.size(); ++f)
    if (f != i && f != j)
      wanted.insert(wanted.end(), factors[f].indexing.indices.begin(), factors[f].indexing.indices.end());
  return wanted;
}

template <class T>
double result_size(const std::vector<Factor<T>>& factors, std::size_t i, std::size_t j, const Indices& wanted,
                   const Shape& extents) {
  return count(pairing_of(factors[i].indexing, factors[j].indexing, outliving(factors, i, j, wanted)).result(),
               extents);
}

template <class T>
std::pair<std::size_t, std::size_t> next_pair(const std::vector<Factor<T>>& factors, const Indices& wanted,
                                              const Shape& extents, ContractionOrder order) {
  const std::size_t last = factors.size() - 1;
  std::pair<std::size_t, std::size_t> pair{0, 1};
  if (order == ContractionOrder::from_the_right) pair = {last - 1, last};
  if (order == ContractionOrder::outer_first) pair = {0, last};
  if (order != ContractionOrder::smallest_first &&
      result_size(factors, pair.first, pair.second, wanted, extents) <= kMostProducts)
    return pair;
  double least = kInfinity;
  for (std::size_t i = 0; i < last; ++i)
    for (std::size_t j = i + 1; j <= last; ++j)
      if (const double size = result_size(factors, i, j, wanted, extents); size < least) {
        least = size;
        pair = {i, j};
      }
  return pair;
}

}  // namespace contraction_detail

// The factors' product, summed over every index that is not in `wanted`.
template <class T>
Factor<T> contract(std::vector<Factor<T>> factors, const std::vector<int>& wanted, const Shape& extents,
                   ContractionOrder order) {
  using namespace contraction_detail;
  if (order == ContractionOrder::one_sum && factors.size() > 1) {
    Indices all = wanted;
    for (const Factor<T>& factor : factors)
      for (const int index : factor.indexing.indices)
        if (!contains(all, index)) all.push_back(index);
    if (count(all, extents) <= kMostProducts) return sum_of_all(factors, wanted, extents);
    order = ContractionOrder::smallest_first;
  }
  while (factors.size() > 1) {
    const auto [i, j] = next_pair(factors, wanted, extents, order);
    const Indices outlive = outliving(factors, i, j, wanted);
    const auto needed = [&](const Factor<T>& other) {
      Indices indices = outlive;
      indices.insert(indices.end(), other.indexing.indices.begin(), other.indexing.indices.end());
      return indices;
    };
    const Indices needed_of_i = needed(factors[j]), needed_of_j = needed(factors[i]);
    const Factor<T> x = sum_over_others(std::move(factors[i]), needed_of_i, extents);
    const Factor<T> y = sum_over_others(std::move(factors[j]), needed_of_j, extents);
    factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(j));
    factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(i));
    factors.insert(order == ContractionOrder::from_the_right ? factors.end() : factors.begin(),
                   multiply(x, y, outlive, extents));
  }
  return sum_over_others(std::move(factors[0]), wanted, extents);
}

// Writes a contraction's result into a tensor of shape `shape`, whose axes run over `axes`: along an index that the
// result does not have it is repeated, beside a diagonal the tensor stays as it is.
template <class T>
void store(const Factor<T>& result, const std::vector<int>& axes, const Shape& shape, const Shape& extents,
           std::span<T> out) {
  const Indexing target = indexing_of(axes, shape);
  const auto to = places(target, target.indices, extents), from = places(result.indexing, target.indices, extents);
  for (std::size_t i = 0; i < to.size(); ++i) out[static_cast<std::size_t>(to[i])] = result.at(from[i]);
}

}  // namespace opdiff
