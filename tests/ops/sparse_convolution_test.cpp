// A transposed convolution of a cotangent that is mostly zeros, as that of MaxPool and Relu is: the sums are made term
// by term then, and must be what they are otherwise.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "ops/convolution.h"

namespace opdiff {
namespace {

std::vector<double> draw(Rng& rng, std::int64_t count, double zeros) {
  std::vector<double> x(static_cast<std::size_t>(count));
  for (double& v : x) v = rng.chance(zeros) ? 0 : round_to(rng.normal(), kF32);
  return x;
}

TEST(SparseConvolution, IsTheDenseOne) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed, "sparse convolution");
    Convolution c;
    c.batch = rng.integer(1, 3);
    c.group = rng.integer(1, 2);
    c.rows = rng.integer(1, 5);
    c.depth = rng.integer(1, 20);
    const std::int64_t stride = rng.integer(1, 2), dilation = rng.integer(1, 2), kernel = rng.integer(1, 3),
                       pad = rng.integer(0, 1), out = rng.integer(2, 6);
    const std::int64_t in = (out - 1) * stride + (kernel - 1) * dilation + 1 - 2 * pad + rng.integer(0, stride - 1);
    if (in < 1) continue;
    c.window = {{in, in}, {kernel, kernel}, {stride, stride}, {dilation, dilation}, {pad, pad}, {pad, pad}, {out, out}};
    const std::int64_t inputs = c.batch * c.group * c.depth * c.plane(),
                       weights = c.group * c.rows * c.depth * c.taps();
    const std::vector<double> y = draw(rng, c.batch * c.group * c.rows * c.positions(), 0.9), w = draw(rng, weights, 0);
    const auto transposed = [&]<class T>(const std::vector<double>& y, const std::vector<double>& w, T) {
      std::vector<T> x(static_cast<std::size_t>(inputs));
      convolve_transposed<T>(c, std::span(y), std::span(w), std::span<const double>(),
                             [&](std::int64_t count, const auto& fill) {
                               const std::size_t size = x.size() / static_cast<std::size_t>(count);
                               for (std::int64_t i = 0; i < count; ++i)
                                 fill(i, std::span(x).subspan(static_cast<std::size_t>(i) * size, size));
                             });
      return x;
    };
    std::vector<double> y_size = y, w_size = w;
    for (double& v : y_size) v = std::fabs(v);
    for (double& v : w_size) v = std::fabs(v);
    const std::vector<double> value = transposed(y, w, 0.0), magnitudes = transposed(y_size, w_size, 0.0);
    const std::vector<Enclosure<double>> x = transposed(y, w, Enclosure<double>());
    const double terms = static_cast<double>(c.rows * c.taps());
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(x[i].v, value[i], 1e-13 * magnitudes[i]);
      const double radius = gamma(terms, arithmetic().u) * magnitudes[i];
      if (!x[i].exact()) {
        EXPECT_NEAR(x[i].e, radius, 1e-9 * radius + terms * arithmetic().eta);
      }
    }
  }
}

}  // namespace
}  // namespace opdiff
