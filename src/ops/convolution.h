// The three sums that Conv, ConvTranspose and their gradients are made of, in the geometry of the convolution: with
// w [M, C/group, taps...] it takes x [N, C, plane...] to y [N, M, positions...]. ConvTranspose takes y to x.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "numerics/parallel.h"
#include "numerics/product.h"
#include "numerics/sum.h"
#include "ops/meta_operator.h"
#include "ops/window.h"

namespace opdiff {

struct Convolution {
  Window window;
  std::int64_t batch = 0, group = 1;
  std::int64_t rows = 0, depth = 0;  // channels of y and of x in one group

  std::int64_t taps() const { return window.kernel_size(); }
  std::int64_t plane() const { return window.input_size(); }
  std::int64_t positions() const { return window.output_size(); }
};

// What Conv and ConvTranspose demand of X, W, B and kernel_shape alike; gives W's spatial shape.
Expected<Shape> convolution_kernel(const Call& call);

// Where tap k of which output reads plane element i: reader[k plane + i], -1: none does. `table` is tap_table().
inline std::vector<std::int64_t> tap_readers(const Convolution& c, const std::vector<std::int64_t>& table) {
  const std::int64_t taps = c.taps(), plane = c.plane(), positions = c.positions();
  std::vector<std::int64_t> reader(static_cast<std::size_t>(taps * plane), -1);
  for (std::int64_t k = 0; k < taps; ++k)
    for (std::int64_t o = 0; o < positions; ++o)
      if (const std::int64_t i = table[static_cast<std::size_t>(k * positions + o)]; i >= 0)
        reader[static_cast<std::size_t>(k * plane + i)] = o;
  return reader;
}

// Channels, each with a zero behind its last element, and tables whose -1 points there: what a table says is read
// without asking whether it is padding.
template <class E>
struct Padded {
  Padded(const E* channels, std::int64_t count, std::int64_t extent) : stride(extent + 1) {
    values.reserve(static_cast<std::size_t>(count * stride));
    for (std::int64_t c = 0; c < count; ++c, channels += extent) {
      values.insert(values.end(), channels, channels + extent);
      values.push_back(E(0));
    }
  }

  std::int64_t stride;
  std::vector<E> values;
};

inline std::vector<std::int64_t> padded_table(std::vector<std::int64_t> table, std::int64_t extent) {
  std::replace(table.begin(), table.end(), std::int64_t{-1}, extent);
  return table;
}

// The matrix that a convolution multiplies by, made where it is needed: row c * taps + k, column j is element
// table[k * columns + j] of channel c.
inline ColumnPanels unfolding(const Padded<double>& source, const std::int64_t* table, std::int64_t taps,
                              std::int64_t columns) {
  return [=, &source](std::int64_t n0, std::int64_t width, std::int64_t k0, std::int64_t k1, double* panel) {
    std::int64_t tap = k0 % taps;
    const double* from = source.values.data() + k0 / taps * source.stride;
    for (std::int64_t k = k0; k < k1; ++k, panel += kPanelWidth) {
      const std::int64_t* at = table + tap * columns + n0;
      if (width == kPanelWidth) {
        for (std::int64_t j = 0; j < kPanelWidth; ++j) panel[j] = from[at[j]];
      } else {
        for (std::int64_t j = 0; j < kPanelWidth; ++j) panel[j] = j < width ? from[at[j]] : 0;
      }
      if (++tap < taps) continue;
      tap = 0;
      from += source.stride;
    }
  };
}

// The same matrix as a whole, of `channels` channels.
template <class E>
void unfold(const Padded<E>& source, const std::int64_t* table, std::int64_t taps, std::int64_t channels,
            std::int64_t columns, E* unfolded) {
  const E* from = source.values.data();
  for (std::int64_t c = 0; c < channels; ++c, from += source.stride)
    for (std::int64_t i = 0; i < taps * columns; ++i) *unfolded++ = from[table[i]];
}

template <class T>
inline constexpr bool kTakesPanels = std::is_same_v<T, Enclosure<double>>;

// Row i: what the elements of y, one image's [rows, positions], that are not zero add to plane element i; column
// m * taps + k.
SparseRows readings(const Convolution& c, const double* y, const std::vector<std::int64_t>& table);
// Whether a transposed convolution of y is less work element by element of y than with a whole matrix.
bool is_sparse(const Convolution& c, const double* y);

// Whether less than a third of y, one image and group, is not zero: an element alone costs about as much as three
// inside a matrix product.
bool is_mostly_zero(const Convolution& c, const double* y);
template <class E>
bool all_finite(std::span<const E> values) {
  return std::all_of(values.begin(), values.end(), [](const E& v) { return math::is_finite(v); });
}
// The sums of convolve_transposed() and convolve_weights() for one image and group, the zeros of y left out; w and x
// are finite. `table` is tap_table().
void add_transposed(const Convolution& c, const double* y, const double* w, const std::vector<std::int64_t>& table,
                    double* x);
void add_weights(const Convolution& c, const double* y, const double* x, const std::vector<std::int64_t>& table,
                 double* w);

// Adds values[m] to the whole plane of channel m.
template <class E, class T>
[[gnu::flatten]] void add_to_channels(std::int64_t plane, std::span<const E> values, std::span<T> y) {
  const std::int64_t channels = std::ssize(values);
  T* element = y.data();
  for (std::int64_t row = 0; row * plane < std::ssize(y); ++row) {
    const T value(values[static_cast<std::size_t>(row % channels)]);
    for (std::int64_t i = 0; i < plane; ++i, ++element) *element = *element + value;
  }
}

// y[n, m, o] = initial[m] + sum over c, k of x[n, c, o s - p + k d] w[m, c, k], then + added[m]. `initial` and `added`
// may be empty: zero, nothing. `make(count, fill)` has the pieces of y, one an image and group, filled by
// fill(i, piece) (Frame::output_pieces).
template <class T, class E, class Make>
void convolve(const Convolution& c, std::span<const E> x, std::span<const E> w, std::span<const E> initial,
              std::span<const E> added, const Make& make) {
  const std::int64_t taps = c.taps(), columns = c.positions(), depth = c.depth * taps;
  const std::vector<std::int64_t> table = padded_table(tap_table(c.window), c.plane());
  make(c.batch * c.group, [&](std::int64_t piece, std::span<T> y) {
    const std::int64_t g = piece % c.group;
    const E* weights = w.data() + g * c.rows * depth;
    const E* start = initial.empty() ? nullptr : initial.data() + g * c.rows;
    const Padded<E> image(x.data() + piece * c.depth * c.plane(), c.depth, c.plane());
    T* out = y.data();
    const auto last =
        added.empty() ? added : added.subspan(static_cast<std::size_t>(g * c.rows), static_cast<std::size_t>(c.rows));
    if constexpr (kTakesPanels<T>) {
      products({c.rows, columns, depth}, weights, unfolding(image, table.data(), taps, columns), start,
               last.empty() ? nullptr : last.data(), out);
    } else {
      const auto unfolded = std::make_unique_for_overwrite<E[]>(static_cast<std::size_t>(depth * columns));
      unfold(image, table.data(), taps, c.depth, columns, unfolded.get());
      products({c.rows, columns, depth}, weights, unfolded.get(), start, out);
      if (!last.empty()) add_to_channels(columns, last, y);
    }
  });
}

// One image and group of convolve_transposed() with the terms that there are and no others: beside an infinite weight
// the zeros that stand for the rest would be NaN. `reader` is padded.
template <class T, class E>
void sum_transposed(const Convolution& c, const E* y, const E* w, const E* initial,
                    const std::vector<std::int64_t>& reader, T* x) {
  const std::int64_t taps = c.taps(), plane = c.plane(), positions = c.positions();
  std::vector<E> left, right;
  std::vector<T> sums(static_cast<std::size_t>(c.depth));
  for (std::int64_t i = 0; i < plane; ++i) {
    std::vector<std::int64_t> terms;  // m * taps + k
    right.clear();
    for (std::int64_t m = 0; m < c.rows; ++m)
      for (std::int64_t k = 0; k < taps; ++k)
        if (const std::int64_t o = reader[static_cast<std::size_t>(k * plane + i)]; o < positions) {
          terms.push_back(m * taps + k);
          right.push_back(y[m * positions + o]);
        }
    left.clear();
    for (std::int64_t d = 0; d < c.depth; ++d)
      for (const std::int64_t term : terms) left.push_back(w[(term / taps * c.depth + d) * taps + term % taps]);
    products({c.depth, 1, std::ssize(terms)}, left.data(), right.data(), initial, sums.data());
    for (std::int64_t d = 0; d < c.depth; ++d) x[d * plane + i] = sums[static_cast<std::size_t>(d)];
  }
}

// x[n, c, i] = initial[c] + sum over m, k of y[n, m, o] w[m, c, k] where o s - p + k d = i. `make` as above.
template <class T, class E, class Make>
void convolve_transposed(const Convolution& c, std::span<const E> y, std::span<const E> w, std::span<const E> initial,
                         const Make& make) {
  const std::int64_t taps = c.taps(), plane = c.plane(), positions = c.positions();
  const std::vector<std::int64_t> table = tap_table(c.window), reader = padded_table(tap_readers(c, table), positions);
  make(c.batch * c.group, [&](std::int64_t piece, std::span<T> x) {
    const std::int64_t g = piece % c.group;
    const ProductShape shape{c.depth, plane, c.rows * taps};
    const E* start = initial.empty() ? nullptr : initial.data() + g * c.depth;
    T* out = x.data();
    const std::span<const E> weights = w.subspan(static_cast<std::size_t>(g * c.rows * c.depth * taps),
                                                 static_cast<std::size_t>(c.rows * c.depth * taps));
    if constexpr (std::is_same_v<E, double> || std::is_same_v<E, Quad>) {
      if (!all_finite(weights))
        return sum_transposed(c, y.data() + piece * c.rows * positions, weights.data(), start, reader, out);
    }
    if constexpr (std::is_same_v<T, double>) {
      const double* image = y.data() + piece * c.rows * positions;
      if (is_mostly_zero(c, image)) {
        for (std::int64_t d = 0; d < c.depth; ++d) std::fill_n(out + d * plane, plane, start ? start[d] : 0.0);
        return add_transposed(c, image, weights.data(), table, out);
      }
    }
    if constexpr (kTakesPanels<T>) {
      const double* image = y.data() + piece * c.rows * positions;
      if (!arithmetic().flush_to_zero && is_sparse(c, image)) {
        std::vector<double> b;  // row m * taps + k, a column for each channel
        b.reserve(weights.size());
        for (std::int64_t m = 0; m < c.rows; ++m)
          for (std::int64_t k = 0; k < taps; ++k)
            for (std::int64_t d = 0; d < c.depth; ++d)
              b.push_back(weights[static_cast<std::size_t>((m * c.depth + d) * taps + k)]);
        transposed_products({plane, c.depth, c.rows * taps}, readings(c, image, table), b.data(), start, out);
        return;
      }
    }
    std::vector<E> turned(static_cast<std::size_t>(c.depth * c.rows * taps));
    for (std::int64_t m = 0; m < c.rows; ++m) {
      const E* kernels = w.data() + (g * c.rows + m) * c.depth * taps;
      for (std::int64_t channel = 0; channel < c.depth; ++channel)
        std::copy_n(kernels + channel * taps, taps, turned.data() + (channel * c.rows + m) * taps);
    }
    const Padded<E> outputs(y.data() + piece * c.rows * positions, c.rows, positions);
    if constexpr (kTakesPanels<T>) {
      products(shape, turned.data(), unfolding(outputs, reader.data(), taps, plane), start, nullptr, out);
    } else {
      const auto unfolded = std::make_unique_for_overwrite<E[]>(static_cast<std::size_t>(c.rows * taps * plane));
      unfold(outputs, reader.data(), taps, c.rows, plane, unfolded.get());
      products(shape, turned.data(), unfolded.get(), start, out);
    }
  });
}

// w[m, c, k] = sum over n, o of y[n, m, o] x[n, c, o s - p + k d].
template <class E, class T>
void convolve_weights(const Convolution& c, std::span<const E> y, std::span<const E> x, std::span<T> w) {
  const std::int64_t taps = c.taps(), columns = c.positions(), plane = c.plane(), depth = c.depth * taps;
  std::vector<std::int64_t> table = tap_table(c.window);
  if constexpr (std::is_same_v<T, double>) {
    std::fill(w.begin(), w.end(), 0.0);
    const bool finite = all_finite(x);
    const auto unfolded = std::make_unique_for_overwrite<double[]>(static_cast<std::size_t>(columns * depth));
    for (std::int64_t piece = 0; piece < c.batch * c.group; ++piece) {
      const double* image = x.data() + piece * c.depth * plane;
      const double* left = y.data() + piece * c.rows * columns;
      double* out = w.data() + piece % c.group * c.rows * depth;
      if (finite && is_mostly_zero(c, left)) {
        add_weights(c, left, image, table, out);
        continue;
      }
      double* next = unfolded.get();
      for (std::int64_t o = 0; o < columns; ++o)
        for (std::int64_t channel = 0; channel < c.depth; ++channel)
          for (std::int64_t k = 0; k < taps; ++k) {
            const std::int64_t i = table[static_cast<std::size_t>(k * columns + o)];
            *next++ = i < 0 ? 0 : image[channel * plane + i];
          }
      add_products({c.rows, depth, columns}, left, unfolded.get(), out);
    }
    return;
  }
  table = padded_table(std::move(table), plane);
  std::vector<std::int64_t> read_by;  // the same, output by output
  for (std::int64_t o = 0; o < columns; ++o)
    for (std::int64_t k = 0; k < taps; ++k) read_by.push_back(table[static_cast<std::size_t>(k * columns + o)]);
  const Padded<E> images(x.data(), c.batch * c.group * c.depth, plane);
  for (std::int64_t g = 0; g < c.group; ++g) {
    std::vector<E> left(static_cast<std::size_t>(c.rows * c.batch * columns));
    for (std::int64_t n = 0; n < c.batch; ++n)
      for (std::int64_t m = 0; m < c.rows; ++m)
        std::copy_n(y.data() + ((n * c.group + g) * c.rows + m) * columns, columns,
                    left.data() + (m * c.batch + n) * columns);
    const ProductShape shape{c.rows, depth, c.batch * columns};
    T* out = w.data() + g * c.rows * depth;
    if constexpr (kTakesPanels<T>) {
      // Row n * columns + o, column channel * taps + k: what tap k of output o of image n reads.
      const auto taken = [&](std::int64_t n0, std::int64_t width, std::int64_t k0, std::int64_t k1, double* panel) {
        std::int64_t channel[kPanelWidth], tap[kPanelWidth];
        for (std::int64_t j = 0; j < width; ++j) {
          channel[j] = (n0 + j) / taps * images.stride;
          tap[j] = (n0 + j) % taps;
        }
        std::int64_t n = k0 / columns, o = k0 % columns;
        for (std::int64_t row = k0; row < k1; ++row, panel += kPanelWidth) {
          const double* image = images.values.data() + (n * c.group + g) * c.depth * images.stride;
          const std::int64_t* reads = read_by.data() + o * taps;
          for (std::int64_t j = 0; j < width; ++j) panel[j] = image[channel[j] + reads[tap[j]]];
          std::fill(panel + width, panel + kPanelWidth, 0.0);
          if (++o < columns) continue;
          o = 0;
          ++n;
        }
      };
      products(shape, left.data(), ColumnPanels(taken), nullptr, nullptr, out);
      continue;
    }
    const auto unfolded = std::make_unique_for_overwrite<E[]>(static_cast<std::size_t>(c.batch * columns * depth));
    E* next = unfolded.get();
    for (std::int64_t n = 0; n < c.batch; ++n)
      for (std::int64_t o = 0; o < columns; ++o)
        for (std::int64_t channel = 0; channel < c.depth; ++channel) {
          const E* from = images.values.data() + ((n * c.group + g) * c.depth + channel) * images.stride;
          for (std::int64_t k = 0; k < taps; ++k) *next++ = from[read_by[static_cast<std::size_t>(o * taps + k)]];
        }
    products(shape, left.data(), unfolded.get(), static_cast<const E*>(nullptr), out);
  }
}

// The sum of each channel of [batch, channels, plane].
template <class E, class T>
void sum_channels(std::int64_t batch, std::int64_t plane, std::span<const E> values, std::span<T> sums) {
  const std::int64_t channels = std::ssize(sums);
  for (std::int64_t m = 0; m < channels; ++m) {
    Sum<T> sum;
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t i = 0; i < plane; ++i)
        sum.add(T(values[static_cast<std::size_t>((n * channels + m) * plane + i)]));
    sums[static_cast<std::size_t>(m)] = sum.result();
  }
}

// The terms of one element of each, for Reduction.
Reduction convolve_terms(const Convolution& c, const Tensor& x, const Tensor& w, std::int64_t index);
Reduction convolve_transposed_terms(const Convolution& c, const Tensor& y, const Tensor& w, std::int64_t index);
Reduction convolve_weights_terms(const Convolution& c, const Tensor& y, const Tensor& x, std::int64_t index);
Reduction channel_terms(const Tensor& values, std::int64_t channel);

}  // namespace opdiff
