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

// The matrix that a convolution multiplies by, made where it is needed: row c * taps + k, column j is
// source[c * channel + table[k * columns + j]], zero where the table says -1.
inline ColumnPanels unfolding(const double* source, std::int64_t channel, const std::int64_t* table, std::int64_t taps,
                              std::int64_t columns) {
  return [=](std::int64_t n0, std::int64_t width, std::int64_t k0, std::int64_t k1, double* panel) {
    for (std::int64_t k = k0; k < k1; ++k, panel += kPanelWidth) {
      const double* from = source + k / taps * channel;
      const std::int64_t* at = table + k % taps * columns + n0;
      for (std::int64_t j = 0; j < width; ++j) panel[j] = at[j] < 0 ? 0 : from[at[j]];
      std::fill(panel + width, panel + kPanelWidth, 0.0);
    }
  };
}

// The same matrix as a whole, of `channels` channels.
template <class E>
void unfold(const E* source, std::int64_t channel, const std::int64_t* table, std::int64_t taps, std::int64_t channels,
            std::int64_t columns, E* unfolded) {
  for (std::int64_t c = 0; c < channels; ++c, source += channel)
    for (std::int64_t i = 0; i < taps * columns; ++i) *unfolded++ = table[i] < 0 ? E(0) : source[table[i]];
}

template <class T>
inline constexpr bool kTakesPanels = std::is_same_v<T, Enclosure<double>>;

// y[n, m, o] = initial[m] + sum over c, k of x[n, c, o s - p + k d] w[m, c, k]. `initial` may be empty: zero.
template <class E, class T>
void convolve(const Convolution& c, std::span<const E> x, std::span<const E> w, std::span<const E> initial,
              std::span<T> y) {
  const std::int64_t taps = c.taps(), columns = c.positions(), depth = c.depth * taps;
  const std::vector<std::int64_t> table = tap_table(c.window);
  parallel_for(c.batch * c.group, [&](std::int64_t piece) {
    const std::int64_t g = piece % c.group;
    const E* weights = w.data() + g * c.rows * depth;
    const E* start = initial.empty() ? nullptr : initial.data() + g * c.rows;
    const E* image = x.data() + piece * c.depth * c.plane();
    T* out = y.data() + piece * c.rows * columns;
    if constexpr (kTakesPanels<T>) {
      products({c.rows, columns, depth}, weights, unfolding(image, c.plane(), table.data(), taps, columns), start, out);
    } else {
      const auto unfolded = std::make_unique_for_overwrite<E[]>(static_cast<std::size_t>(depth * columns));
      unfold(image, c.plane(), table.data(), taps, c.depth, columns, unfolded.get());
      products({c.rows, columns, depth}, weights, unfolded.get(), start, out);
    }
  });
}

// x[n, c, i] = initial[c] + sum over m, k of y[n, m, o] w[m, c, k] where o s - p + k d = i.
template <class E, class T>
void convolve_transposed(const Convolution& c, std::span<const E> y, std::span<const E> w, std::span<const E> initial,
                         std::span<T> x) {
  const std::int64_t taps = c.taps(), plane = c.plane(), positions = c.positions();
  const std::vector<std::int64_t> reader = tap_readers(c, tap_table(c.window));
  parallel_for(c.batch * c.group, [&](std::int64_t piece) {
    const std::int64_t g = piece % c.group;
    std::vector<E> turned(static_cast<std::size_t>(c.depth * c.rows * taps));
    for (std::int64_t m = 0; m < c.rows; ++m) {
      const E* kernels = w.data() + (g * c.rows + m) * c.depth * taps;
      for (std::int64_t channel = 0; channel < c.depth; ++channel)
        std::copy_n(kernels + channel * taps, taps, turned.data() + (channel * c.rows + m) * taps);
    }
    const ProductShape shape{c.depth, plane, c.rows * taps};
    const E* start = initial.empty() ? nullptr : initial.data() + g * c.depth;
    const E* outputs = y.data() + piece * c.rows * positions;
    T* out = x.data() + piece * c.depth * plane;
    if constexpr (kTakesPanels<T>) {
      products(shape, turned.data(), unfolding(outputs, positions, reader.data(), taps, plane), start, out);
    } else {
      const auto unfolded = std::make_unique_for_overwrite<E[]>(static_cast<std::size_t>(c.rows * taps * plane));
      unfold(outputs, positions, reader.data(), taps, c.rows, plane, unfolded.get());
      products(shape, turned.data(), unfolded.get(), start, out);
    }
  });
}

// w[m, c, k] = sum over n, o of y[n, m, o] x[n, c, o s - p + k d].
template <class E, class T>
void convolve_weights(const Convolution& c, std::span<const E> y, std::span<const E> x, std::span<T> w) {
  const std::int64_t taps = c.taps(), columns = c.positions(), plane = c.plane(), depth = c.depth * taps;
  const std::vector<std::int64_t> table = tap_table(c.window);
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
        std::fill(panel, panel + (k1 - k0) * kPanelWidth, 0.0);
        for (std::int64_t j = 0; j < width; ++j) {
          const std::int64_t channel = (n0 + j) / taps, *reads = table.data() + (n0 + j) % taps * columns;
          for (std::int64_t row = k0; row < k1;) {
            const std::int64_t n = row / columns, end = std::min(k1, (n + 1) * columns);
            const E* source = x.data() + ((n * c.group + g) * c.depth + channel) * plane;
            for (; row < end; ++row)
              if (const std::int64_t i = reads[row - n * columns]; i >= 0)
                panel[(row - k0) * kPanelWidth + j] = source[i];
          }
        }
      };
      products(shape, left.data(), ColumnPanels(taken), nullptr, out);
      continue;
    }
    std::vector<E> unfolded(static_cast<std::size_t>(c.batch * columns * depth));
    for (std::int64_t n = 0; n < c.batch; ++n) {
      const std::int64_t piece = n * c.group + g;
      for (std::int64_t channel = 0; channel < c.depth; ++channel)
        for (std::int64_t k = 0; k < taps; ++k)
          for (std::int64_t o = 0; o < columns; ++o)
            if (const std::int64_t i = table[static_cast<std::size_t>(k * columns + o)]; i >= 0)
              unfolded[static_cast<std::size_t>((n * columns + o) * depth + channel * taps + k)] =
                  x[static_cast<std::size_t>((piece * c.depth + channel) * plane + i)];
    }
    products(shape, left.data(), unfolded.data(), static_cast<const E*>(nullptr), out);
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

// Adds values[m] to the whole plane of channel m.
template <class E, class T>
void add_to_channels(std::int64_t plane, std::span<const E> values, std::span<T> y) {
  const std::int64_t channels = std::ssize(values);
  T* element = y.data();
  for (std::int64_t row = 0; row * plane < std::ssize(y); ++row) {
    const T value(values[static_cast<std::size_t>(row % channels)]);
    for (std::int64_t i = 0; i < plane; ++i, ++element) *element = *element + value;
  }
}

// The terms of one element of each, for Reduction.
Reduction convolve_terms(const Convolution& c, const Tensor& x, const Tensor& w, std::int64_t index);
Reduction convolve_transposed_terms(const Convolution& c, const Tensor& y, const Tensor& w, std::int64_t index);
Reduction convolve_weights_terms(const Convolution& c, const Tensor& y, const Tensor& x, std::int64_t index);
Reduction channel_terms(const Tensor& values, std::int64_t channel);

}  // namespace opdiff
