// Mean and variance, two-pass and one-pass, in f32 of every order against their enclosures.
#include "numerics/moments.h"

#include <gtest/gtest.h>

#include "numerics/nasty.h"

namespace opdiff {
namespace {

std::vector<double> shifted(Rng& rng, int n, double mean) {
  std::vector<double> x;
  for (int k = 0; k < n; ++k) x.push_back(round_to(mean + rng.normal(), kF32));
  return x;
}

template <class T>
Moments<T> moments(const std::vector<double>& x, bool one_pass) {
  const auto element = [&](std::int64_t k) { return x[static_cast<std::size_t>(k)]; };
  const auto n = static_cast<std::int64_t>(x.size());
  return one_pass ? one_pass_moments<T>(n, element) : two_pass_moments<T>(n, element, 0);
}

constexpr SumOrder kOrders[] = {{SumOrder::Kind::sequential, 1, false, 0}, {SumOrder::Kind::reversed, 1, false, 0},
                                {SumOrder::Kind::pairwise, 1, false, 0},   {SumOrder::Kind::lanes, 8, false, 0},
                                {SumOrder::Kind::shuffled, 1, false, 7},   {SumOrder::Kind::wide, 1, false, 0}};

TEST(Moments, EncloseEveryOrder) {
  const ProfileScope scope(inner_f32(DType::f32));
  Rng rng(1);
  for (const bool one_pass : {false, true})
    for (const double mean : {0.0, 1.0, 30.0, 1000.0})
      for (const int n : {2, 10, 200, 2000}) {
        double squares = 0;
        int count = 0;
        for (int draw = 0; draw < 40; ++draw) {
          const std::vector<double> x = shifted(rng, n, mean);
          const Moments<Enclosure<double>> e = moments<Enclosure<double>>(x, one_pass);
          EXPECT_NEAR(e.variance.v, moments<double>(x, false).variance, 1e-9 * (1 + mean * mean));
          const double d = std::sqrt(static_cast<double>(e.variance.variance()));
          for (const SumOrder& order : kOrders) {
            working_order() = order;
            const Moments<Working> y = moments<Working>(x, one_pass);
            const double off = y.variance.v - e.variance.v;
            EXPECT_LE(std::fabs(off), e.variance.e) << one_pass << " mean " << mean << " n " << n;
            EXPECT_LE(std::fabs(y.mean.v - e.mean.v), e.mean.e);
            if (!(d > 0)) continue;
            EXPECT_LT(std::fabs(off), 8 * d) << one_pass << " mean " << mean << " n " << n;
            squares += off * off / d / d;
            ++count;
          }
        }
        const double rms = std::sqrt(squares / count);
        EXPECT_LT(rms, 1) << one_pass << " mean " << mean << " n " << n;
        EXPECT_GT(rms, 0.05) << one_pass << " mean " << mean << " n " << n;
      }
  working_order() = SumOrder();
}

TEST(Moments, OnePassIsNoRoundingWhereTheMeanIsLarge) {
  const ProfileScope scope(inner_f32(DType::f32));
  Rng rng(2);
  for (int draw = 0; draw < 20; ++draw) {
    const std::vector<double> x = shifted(rng, 200, 1000);
    const Enclosure<double> two = moments<Enclosure<double>>(x, false).variance;
    const double off = std::fabs(moments<Working>(x, true).variance.v - two.v);
    EXPECT_GT(off, 8 * std::sqrt(static_cast<double>(two.variance())));
  }
}

}  // namespace
}  // namespace opdiff
