// The three sums that Conv, ConvTranspose and their gradients are made of, in the geometry of the convolution: with
// w [M, C/group, taps...] it takes x [N, C, plane...] to y [N, M, positions...]. ConvTranspose takes y to x.
#pragma once

#include <algorithm>
#include <span>
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

// y[n, m, o] = initial[m] + sum over c, k of x[n, c, o s - p + k d] w[m, c, k]. `initial` may be empty: zero.
template <class E, class T>
void convolve(const Convolution& c, std::span<const E> x, std::span<const E> w, std::span<const E> initial,
              std::span<T> y) {
  const std::int64_t taps = c.taps(), columns = c.positions(), depth = c.depth * taps;
  const std::vector<std::int64_t> table = tap_table(c.window);
  parallel_for(c.batch * c.group, [&](std::int64_t piece) {
    const std::int64_t g = piece % c.group;
    std::vector<E> unfolded(static_cast<std::size_t>(depth * columns));
    for (std::int64_t channel = 0; channel < c.depth; ++channel) {
      const E* source = x.data() + (piece * c.depth + channel) * c.plane();
      for (std::int64_t i = 0; i < taps * columns; ++i)
        unfolded[static_cast<std::size_t>(channel * taps * columns + i)] =
            table[static_cast<std::size_t>(i)] < 0 ? E(0) : source[table[static_cast<std::size_t>(i)]];
    }
    products({c.rows, columns, depth}, w.data() + g * c.rows * depth, unfolded.data(),
             initial.empty() ? nullptr : initial.data() + g * c.rows, y.data() + piece * c.rows * columns);
  });
}

// x[n, c, i] = initial[c] + sum over m, k of y[n, m, o] w[m, c, k] where o s - p + k d = i.
template <class E, class T>
void convolve_transposed(const Convolution& c, std::span<const E> y, std::span<const E> w, std::span<const E> initial,
                         std::span<T> x) {
  const std::int64_t taps = c.taps(), plane = c.plane();
  const std::vector<std::int64_t> reader = tap_readers(c, tap_table(c.window));
  parallel_for(c.batch * c.group, [&](std::int64_t piece) {
    const std::int64_t g = piece % c.group;
    std::vector<E> turned(static_cast<std::size_t>(c.depth * c.rows * taps));
    std::vector<E> unfolded(static_cast<std::size_t>(c.rows * taps * plane));
    for (std::int64_t m = 0; m < c.rows; ++m) {
      const E* kernels = w.data() + (g * c.rows + m) * c.depth * taps;
      for (std::int64_t channel = 0; channel < c.depth; ++channel)
        std::copy_n(kernels + channel * taps, taps, turned.data() + (channel * c.rows + m) * taps);
      const E* source = y.data() + (piece * c.rows + m) * c.positions();
      for (std::int64_t i = 0; i < taps * plane; ++i)
        if (const std::int64_t o = reader[static_cast<std::size_t>(i)]; o >= 0)
          unfolded[static_cast<std::size_t>(m * taps * plane + i)] = source[o];
    }
    products({c.depth, plane, c.rows * taps}, turned.data(), unfolded.data(),
             initial.empty() ? nullptr : initial.data() + g * c.depth, x.data() + piece * c.depth * plane);
  });
}

// w[m, c, k] = sum over n, o of y[n, m, o] x[n, c, o s - p + k d].
template <class E, class T>
void convolve_weights(const Convolution& c, std::span<const E> y, std::span<const E> x, std::span<T> w) {
  const std::int64_t taps = c.taps(), columns = c.positions(), plane = c.plane(), depth = c.depth * taps;
  const std::vector<std::int64_t> table = tap_table(c.window);
  for (std::int64_t g = 0; g < c.group; ++g) {
    std::vector<E> left(static_cast<std::size_t>(c.rows * c.batch * columns));
    std::vector<E> unfolded(static_cast<std::size_t>(c.batch * columns * depth));
    for (std::int64_t n = 0; n < c.batch; ++n) {
      const std::int64_t piece = n * c.group + g;
      for (std::int64_t m = 0; m < c.rows; ++m)
        std::copy_n(y.data() + (piece * c.rows + m) * columns, columns, left.data() + (m * c.batch + n) * columns);
      for (std::int64_t channel = 0; channel < c.depth; ++channel)
        for (std::int64_t k = 0; k < taps; ++k)
          for (std::int64_t o = 0; o < columns; ++o)
            if (const std::int64_t i = table[static_cast<std::size_t>(k * columns + o)]; i >= 0)
              unfolded[static_cast<std::size_t>((n * columns + o) * depth + channel * taps + k)] =
                  x[static_cast<std::size_t>((piece * c.depth + channel) * plane + i)];
    }
    products({c.rows, depth, c.batch * columns}, left.data(), unfolded.data(), static_cast<const E*>(nullptr),
             w.data() + g * c.rows * depth);
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
  for (std::int64_t i = 0; i < std::ssize(y); ++i) {
    T& element = y[static_cast<std::size_t>(i)];
    element = element + T(values[static_cast<std::size_t>(i / plane % channels)]);
  }
}

// The terms of one element of each, for Reduction.
Reduction convolve_terms(const Convolution& c, const Tensor& x, const Tensor& w, std::int64_t index);
Reduction convolve_transposed_terms(const Convolution& c, const Tensor& y, const Tensor& w, std::int64_t index);
Reduction convolve_weights_terms(const Convolution& c, const Tensor& y, const Tensor& x, std::int64_t index);
Reduction channel_terms(const Tensor& values, std::int64_t channel);

}  // namespace opdiff
