#include "ops/winograd.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "numerics/order.h"
#include "numerics/parallel.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

std::vector<double> polynomial_with_roots(const std::vector<double>& roots) {
  std::vector<double> coefficients{1};
  for (const double root : roots) {
    coefficients.push_back(0);
    for (std::size_t k = coefficients.size() - 1; k > 0; --k)
      coefficients[k] = coefficients[k - 1] - root * coefficients[k];
    coefficients[0] *= -root;
  }
  return coefficients;
}

// |T| X |T|^T, or with squared entries of T.
std::vector<double> two_sided(const std::vector<double>& t, int rows, int columns, const std::vector<double>& x,
                              bool squares) {
  const auto entry = [&](int i, int k) {
    const double v = t[static_cast<std::size_t>(i * columns + k)];
    return squares ? v * v : std::fabs(v);
  };
  std::vector<double> half(static_cast<std::size_t>(rows * columns)), result(static_cast<std::size_t>(rows * rows));
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      for (int k = 0; k < columns; ++k)
        half[static_cast<std::size_t>(i * columns + j)] += entry(i, k) * x[static_cast<std::size_t>(k * columns + j)];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < rows; ++j)
      for (int k = 0; k < columns; ++k)
        result[static_cast<std::size_t>(i * rows + j)] += half[static_cast<std::size_t>(i * columns + k)] * entry(j, k);
  return result;
}

// Per output element: sum over channels of |A^T| [(|G||g||G^T|) . (|B^T||d||B|)] |A|, or the same with squares.
std::vector<double> magnitudes(const Call& call, const Window& win, const WinogradTransforms& w, bool squares) {
  const Shape& xs = call.shape(0);
  const Shape& ws = call.shape(1);
  const std::int64_t height = win.input[0], width = win.input[1], oh = win.output[0], ow = win.output[1];
  const std::int64_t rows = ws[0] / call.integer("group", 1);
  const std::vector<double> x = call.tensor(0)->to_doubles(), kernel = call.tensor(1)->to_doubles();
  const auto measure = [&](double v) { return squares ? v * v : std::fabs(v); };
  std::vector<std::vector<double>> filters;
  for (std::int64_t f = 0; f < ws[0] * ws[1]; ++f) {
    std::vector<double> taps(9);
    for (int k = 0; k < 9; ++k)
      taps[static_cast<std::size_t>(k)] = measure(kernel[static_cast<std::size_t>(f * 9 + k)]);
    filters.push_back(two_sided(w.g, w.n, w.r, taps, squares));
  }
  std::vector<double> result(static_cast<std::size_t>(xs[0] * ws[0] * oh * ow));
  const std::int64_t tiles_y = (oh + w.m - 1) / w.m, tiles_x = (ow + w.m - 1) / w.m;
  parallel_for(xs[0] * tiles_y * tiles_x, [&](std::int64_t piece) {
    const std::int64_t tx = piece % tiles_x, ty = piece / tiles_x % tiles_y, n = piece / tiles_x / tiles_y;
    std::vector<std::vector<double>> data;
    for (std::int64_t c = 0; c < xs[1]; ++c) {
      std::vector<double> tile(static_cast<std::size_t>(w.n * w.n));
      for (int i = 0; i < w.n; ++i)
        for (int j = 0; j < w.n; ++j) {
          const std::int64_t row = ty * w.m + i - win.pads_begin[0], column = tx * w.m + j - win.pads_begin[1];
          if (row >= 0 && row < height && column >= 0 && column < width)
            tile[static_cast<std::size_t>(i * w.n + j)] =
                measure(x[static_cast<std::size_t>(((n * xs[1] + c) * height + row) * width + column)]);
        }
      data.push_back(two_sided(w.bt, w.n, w.n, tile, squares));
    }
    for (std::int64_t m = 0; m < ws[0]; ++m) {
      const std::int64_t first = m / rows * ws[1];
      std::vector<double> product(static_cast<std::size_t>(w.n * w.n));
      for (std::int64_t c = 0; c < ws[1]; ++c)
        for (std::size_t i = 0; i < product.size(); ++i)
          product[i] +=
              filters[static_cast<std::size_t>(m * ws[1] + c)][i] * data[static_cast<std::size_t>(first + c)][i];
      const std::vector<double> tile = two_sided(w.at, w.m, w.n, product, squares);
      for (int i = 0; i < w.m; ++i)
        for (int j = 0; j < w.m; ++j) {
          const std::int64_t row = ty * w.m + i, column = tx * w.m + j;
          if (row < oh && column < ow)
            result[static_cast<std::size_t>(((n * ws[0] + m) * oh + row) * ow + column)] =
                tile[static_cast<std::size_t>(i * w.m + j)];
        }
    }
  });
  return result;
}

// T X T^T as an implementation computes it: rounded to `format` after every step, the additions in `order`.
std::vector<double> worked_sandwich(const std::vector<double>& t, int rows, int columns, const std::vector<double>& x,
                                    const SumOrder& order, const Format& format) {
  const auto r = static_cast<std::size_t>(rows), c = static_cast<std::size_t>(columns);
  std::vector<double> half(r * c), result(r * r), column(c);
  for (std::size_t j = 0; j < c; ++j) {
    for (std::size_t k = 0; k < c; ++k) column[k] = x[k * c + j];
    for (std::size_t i = 0; i < r; ++i)
      half[i * c + j] = sum_in_order(std::span(t).subspan(i * c, c), column, order, format);
  }
  for (std::size_t i = 0; i < r; ++i)
    for (std::size_t j = 0; j < r; ++j)
      result[i * r + j] =
          sum_in_order(std::span(half).subspan(i * c, c), std::span(t).subspan(j * c, c), order, format);
  return result;
}

std::vector<std::size_t> permutation(std::size_t n, bool random, Rng& rng) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t k = n; random && k > 1; --k)
    std::swap(order[k - 1], order[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(k) - 1))]);
  return order;
}

// T with its columns in another order: with the rows and columns of X in the same, the additions of T X T^T run in it.
std::vector<double> columns_in(const std::vector<std::size_t>& order, const std::vector<double>& t) {
  std::vector<double> result(t.size());
  for (std::size_t i = 0; i < t.size(); ++i) result[i] = t[i / order.size() * order.size() + order[i % order.size()]];
  return result;
}

// One output element of the tile that it lies in. Even variants transform the kernel in the format of the sums, odd
// ones in double, as weights known in advance may be; the additions run in one of four orders or in a random one.
double emulate_winograd(const Call& call, const Window& win, const WinogradTransforms& w, const Profile& profile,
                        std::int64_t index, int variant) {
  using Kind = SumOrder::Kind;
  static constexpr SumOrder kOrders[] = {{Kind::sequential, 1, false, 0},
                                         {Kind::sequential, 1, true, 0},
                                         {Kind::reversed, 1, false, 0},
                                         {Kind::pairwise, 1, false, 0}};
  const bool random = variant >= 8;
  const SumOrder order = kOrders[random ? 0 : variant / 2];
  Rng rng(static_cast<std::uint64_t>(variant), "winograd");
  const Shape& xs = call.shape(0);
  const Shape& ws = call.shape(1);
  const std::int64_t height = win.input[0], width = win.input[1], oh = win.output[0], ow = win.output[1];
  const std::int64_t column = index % ow, row = index / ow % oh, m = index / (ow * oh) % ws[0],
                     n = index / (ow * oh) / ws[0];
  const std::int64_t first = m / (ws[0] / call.integer("group", 1)) * ws[1];
  const std::int64_t top = row / w.m * w.m - win.pads_begin[0], left = column / w.m * w.m - win.pads_begin[1];
  const auto size = static_cast<std::size_t>(w.n * w.n);
  const Format& format = profile.sum;
  const std::vector<std::size_t> by_tap = permutation(3, random, rng),
                                 by_place = permutation(static_cast<std::size_t>(w.n), random, rng),
                                 by_channel = permutation(static_cast<std::size_t>(ws[1]), random, rng);
  const std::vector<double> g = columns_in(by_tap, w.g), bt = columns_in(by_place, w.bt),
                            at = columns_in(by_place, w.at);
  std::vector<std::vector<double>> kernels(size), data(size);  // over the channels, for each place of the tile
  for (const std::size_t channel : by_channel) {
    const auto c = static_cast<std::int64_t>(channel);
    std::vector<double> taps, tile;
    for (const std::size_t i : by_tap)
      for (const std::size_t j : by_tap)
        taps.push_back(call.tensor(1)->at((m * ws[1] + c) * 9 + static_cast<std::int64_t>(3 * i + j)));
    for (const std::size_t i : by_place)
      for (const std::size_t j : by_place) {
        const std::int64_t y = top + static_cast<std::int64_t>(i), x = left + static_cast<std::int64_t>(j);
        tile.push_back(y >= 0 && y < height && x >= 0 && x < width
                           ? call.tensor(0)->at(((n * xs[1] + first + c) * height + y) * width + x)
                           : 0);
      }
    const std::vector<double> kernel = worked_sandwich(g, w.n, w.r, taps, order, variant % 2 ? kF64 : format);
    const std::vector<double> d = worked_sandwich(bt, w.n, w.n, tile, order, format);
    for (std::size_t i = 0; i < size; ++i) {
      kernels[i].push_back(round_to(kernel[i], format));
      data[i].push_back(d[i]);
    }
  }
  std::vector<double> products;
  for (const std::size_t i : by_place)
    for (const std::size_t j : by_place) {
      const std::size_t k = i * by_place.size() + j;
      products.push_back(sum_in_order(kernels[k], data[k], order, format));
    }
  const std::vector<double> tile = worked_sandwich(at, w.m, w.n, products, order, format);
  double y = tile[static_cast<std::size_t>(row % w.m * w.m + column % w.m)];
  if (call.has(2)) y = round_to(y + call.tensor(2)->at(m), format);
  return round_to(y, profile.storage);
}

}  // namespace

WinogradTransforms winograd_transforms(int m, int r) {
  static constexpr double kPoints[] = {0, 1, -1, 2, -2, 0.5, -0.5};
  WinogradTransforms w{m, r, m + r - 1, {}, {}, {}};
  const auto n = static_cast<std::size_t>(w.n);
  w.at.assign(static_cast<std::size_t>(m) * n, 0);
  w.g.assign(n * static_cast<std::size_t>(r), 0);
  w.bt.assign(n * n, 0);
  const std::vector<double> points(kPoints, kPoints + n - 1);
  for (std::size_t j = 0; j + 1 < n; ++j) {
    double scale = 1;
    std::vector<double> others;
    for (std::size_t l = 0; l + 1 < n; ++l)
      if (l != j) {
        scale *= points[j] - points[l];
        others.push_back(points[l]);
      }
    for (int i = 0; i < m; ++i) w.at[static_cast<std::size_t>(i) * n + j] = std::pow(points[j], i);
    for (int k = 0; k < r; ++k)
      w.g[j * static_cast<std::size_t>(r) + static_cast<std::size_t>(k)] = std::pow(points[j], k) / scale;
    const std::vector<double> coefficients = polynomial_with_roots(others);
    std::copy(coefficients.begin(), coefficients.end(), w.bt.begin() + static_cast<std::ptrdiff_t>(j * n));
  }
  w.at[static_cast<std::size_t>(m) * n - 1] = 1;
  w.g[n * static_cast<std::size_t>(r) - 1] = 1;
  const std::vector<double> all = polynomial_with_roots(points);
  std::copy(all.begin(), all.end(), w.bt.end() - static_cast<std::ptrdiff_t>(n));
  return w;
}

std::vector<NamedAlgorithm> winograd_algorithms(const Call& call, const Window& win) {
  if (win.kernel != Shape{3, 3} || win.strides != Shape{1, 1} || win.dilations != Shape{1, 1}) return {};
  std::vector<NamedAlgorithm> algorithms;
  for (const int m : {2, 4, 6}) {
    NamedAlgorithm algorithm;
    algorithm.name = "winograd F(" + std::to_string(m) + ",3)";
    algorithm.enclose = [&call, win, m](const Profile& profile) {
      const WinogradTransforms w = winograd_transforms(m, 3);
      // The direct enclosure gives the centre and the rounding of bias and storage; the transforms' own error comes on
      // top.
      std::vector<EnclosedTensor> outputs = enclose(*find_operator("", "Conv"), call, profile, 0);
      const double u = profile.sum.unit_roundoff();
      const double steps = static_cast<double>(call.shape(1)[1]) + 2 * (3 + w.n + w.n);
      const std::vector<double> sizes = magnitudes(call, win, w, false), squares = magnitudes(call, win, w, true);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        outputs[0].radius[i] += gamma(steps, u) * sizes[i] * kOutward;
        const double d = outputs[0].deviation[i];
        outputs[0].deviation[i] = std::sqrt(d * d + u * u / 3 * steps * squares[i]);
      }
      return outputs;
    };
    algorithm.emulate = [&call, win, w = winograd_transforms(m, 3)](const Profile& profile, std::int64_t index,
                                                                    int variant) {
      return emulate_winograd(call, win, w, profile, index, variant);
    };
    algorithms.push_back(std::move(algorithm));
  }
  return algorithms;
}

}  // namespace opdiff
