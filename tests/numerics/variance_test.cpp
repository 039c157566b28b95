// The deviation against experiment: random roundings through chains and trees of operations.
#include <gtest/gtest.h>

#include "numerics/nasty.h"
#include "numerics/product.h"
#include "numerics/sum.h"

namespace opdiff {
namespace {

// A formula, honest in the profile's format or with random roundings, beside its enclosure. Every operand is fresh.
struct Chain {
  Enclosure<double> enclosed;
  Working working;
  double noisy;
};

double noise(Rng& rng, double x, const Arithmetic& a) { return x * (1 + a.u * rng.uniform(-1, 1)); }

using E = Enclosure<double>;

Chain run_chain(Rng& rng, const Rng& data, int steps, int mix) {
  Rng inputs = data;
  const Arithmetic& a = arithmetic();
  const auto draw = [&] { return round_to(inputs.normal() + (inputs.chance(0.5) ? 2 : 0), a.inner); };
  const double first = draw();
  Chain c{first, first, first};
  for (int i = 0; i < steps; ++i) {
    const double x = draw();
    switch (mix == 0 ? 0 : inputs.integer(0, mix)) {
      case 0: c = {c.enclosed + E(x), c.working + x, noise(rng, c.noisy + x, a)}; break;
      case 1: c = {c.enclosed * E(x), c.working * x, noise(rng, c.noisy * x, a)}; break;
      case 2: {
        const double d = x < 0 ? x - 1 : x + 1, r = round_to(d, a.inner);
        c = {c.enclosed / E(r), c.working / r, noise(rng, c.noisy / r, a)};
        break;
      }
      case 3: c = {c.enclosed - E(x), c.working - x, noise(rng, c.noisy - x, a)}; break;
      default:
        if (c.enclosed.v > 0.1) c = {sqrt(c.enclosed), sqrt(c.working), noise(rng, std::sqrt(c.noisy), a)};
        break;
    }
    if (c.enclosed.exact()) c.noisy = c.enclosed.v;  // nothing was rounded
  }
  return c;
}

class Variance : public testing::TestWithParam<DType> {};

TEST_P(Variance, PredictsRandomRoundings) {
  const ProfileScope scope(inner_storage(GetParam()));
  Rng rng(1);
  for (const int steps : {1, 3, 10, 30})
    for (const int mix : {0, 1, 2, 4}) {
      double noisy = 0, honest = 0, largest = 0;
      int count = 0;
      for (std::uint64_t i = 0; i < 4000; ++i) {
        const Chain c = run_chain(rng, Rng(2, "chain", i), steps, mix);
        const double d = std::sqrt(static_cast<double>(c.enclosed.variance()));
        if (!(d > 0) || c.enclosed.magnitude() < d * 20 || c.enclosed.magnitude() < arithmetic().lambda ||
            c.enclosed.overflow)
          continue;
        const double z = (c.noisy - c.enclosed.v) / d, w = (c.working.v - c.enclosed.v) / d;
        noisy += z * z;
        honest += w * w;
        largest = std::max({largest, std::fabs(z), std::fabs(w)});
        ++count;
      }
      ASSERT_GT(count, 1000);
      const double rms = std::sqrt(noisy / count), real = std::sqrt(honest / count);
      EXPECT_GT(rms, 0.85) << steps << " steps, mix " << mix;
      EXPECT_LT(rms, 1.15) << steps << " steps, mix " << mix;
      EXPECT_GT(real, 0.3) << steps << " steps, mix " << mix;
      EXPECT_LT(real, 1.05) << steps << " steps, mix " << mix;
      EXPECT_LT(largest, 8) << steps << " steps, mix " << mix;
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, Variance, testing::Values(DType::f32, DType::f16, DType::bf16));

TEST(Variance, OfFunctionsPropagates) {
  // f(x) for an x with an error of known deviation, well above rounding.
  Rng rng(3);
  const auto experiment = [&](double x, double d, auto enclosed, auto exact, const char* name) {
    Enclosure<double> e(x);
    e.e = 6 * d;
    e.s = d * d;
    const double predicted = std::sqrt(enclosed(e).variance());
    double squares = 0;
    for (int i = 0; i < 4000; ++i) {
      const double off = exact(x + d * rng.normal()) - exact(x);
      squares += off * off;
    }
    EXPECT_NEAR(std::sqrt(squares / 4000) / predicted, 1, 0.1) << name << " at " << x;
  };
  for (const double x : {-2.0, -0.5, 0.3, 1.0, 1.7}) {
    const double d = 1e-3;
    experiment(x, d, [](auto a) { return exp(a); }, [](double t) { return std::exp(t); }, "exp");
    experiment(x, d, [](auto a) { return expm1(a); }, [](double t) { return std::expm1(t); }, "expm1");
    experiment(x, d, [](auto a) { return tanh(a); }, [](double t) { return std::tanh(t); }, "tanh");
    experiment(x, d, [](auto a) { return erf(a); }, [](double t) { return std::erf(t); }, "erf");
    if (x > 0) {
      experiment(x, d, [](auto a) { return log(a); }, [](double t) { return std::log(t); }, "log");
      experiment(x, d, [](auto a) { return sqrt(a); }, [](double t) { return std::sqrt(t); }, "sqrt");
    }
  }
}

TEST(Variance, OfProductsOfZeros) {
  Enclosure<double> a(0.0), b(0.0);
  a.e = b.e = 1e-2;
  a.s = b.s = 1e-6;
  EXPECT_NEAR(std::sqrt((a * b).variance()), 1e-6, 1e-9);
}

TEST(Variance, NextToAKinkIsThatOfBoth) {
  Enclosure<double> zero(0.0), near(-1e-3), far(-1.0);
  near.e = far.e = 1e-2;
  near.s = far.s = 1e-6;
  EXPECT_GT(maximum(zero, near).variance(), 0);
  EXPECT_EQ(maximum(zero, far).variance(), 0);
  EXPECT_GT(maximum(near, zero).variance(), 0);
  EXPECT_GT(minimum(zero, -near).variance(), 0);
}

TEST(Shared, SourcesCancelAndAdd) {
  Enclosure<double> mean(3.0);
  mean.s = 1e-6;
  const Enclosure<double> m = share(mean, 0);
  EXPECT_NEAR(m.variance(), 1e-6, 1e-18);
  EXPECT_LT((m - m).variance(), 1e-12) << "the same error twice";
  EXPECT_NEAR((m + m).variance(), 4e-6, 1e-9);
  EXPECT_NEAR((m * Enclosure<double>(2.0)).variance(), 4e-6, 1e-9);
  const Enclosure<double> other = share(mean, 1);
  EXPECT_NEAR((m - other).variance(), 2e-6, 1e-9);
}

// Random data in sequential order: the estimate of a sum's deviation is the experiment's.
TEST(Variance, OfSumsMatchesSequentialOrder) {
  Rng rng(4);
  for (const int n : {2, 10, 100, 1000}) {
    double squares = 0;
    for (int i = 0; i < 400; ++i) {
      std::vector<double> a(static_cast<std::size_t>(n)), b(a.size());
      for (double& v : a) v = round_to(rng.normal(), kF32);
      for (double& v : b) v = round_to(rng.normal(), kF32);
      Enclosure<double> y;
      products({1, 1, n}, a.data(), b.data(), nullptr, &y);
      const double z = (sum_in_order(a, b, SumOrder(), kF32) - y.v) / std::sqrt(y.s);
      squares += z * z;
    }
    const double rms = std::sqrt(squares / 400);
    EXPECT_GT(rms, 0.5) << n;
    EXPECT_LT(rms, 1) << n;
  }
}

}  // namespace
}  // namespace opdiff
