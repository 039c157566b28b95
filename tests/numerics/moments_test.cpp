// Mean and variance, two-pass, one-pass and running, in f32 of every order against their enclosures.
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

enum class Way { two_pass, one_pass, running };

template <class T>
Moments<T> moments(const std::vector<double>& x, Way way) {
  const auto element = [&](std::int64_t k) { return x[static_cast<std::size_t>(k)]; };
  const auto n = static_cast<std::int64_t>(x.size());
  if constexpr (rounds<T>)
    if (way == Way::running) return running_moments<T>(n, element);
  return way == Way::one_pass ? one_pass_moments<T>(n, element) : two_pass_moments<T>(n, element, 0);
}

constexpr SumOrder kOrders[] = {{SumOrder::Kind::sequential, 1, false, 0}, {SumOrder::Kind::reversed, 1, false, 0},
                                {SumOrder::Kind::pairwise, 1, false, 0},   {SumOrder::Kind::lanes, 8, false, 0},
                                {SumOrder::Kind::shuffled, 1, false, 7},   {SumOrder::Kind::wide, 1, false, 0}};

TEST(Moments, EncloseEveryOrder) {
  const ProfileScope scope(inner_f32(DType::f32));
  Rng rng(1);
  for (const Way way : {Way::two_pass, Way::one_pass, Way::running})
    for (const double mean : {0.0, 1.0, 30.0, 1000.0})
      for (const int n : {2, 10, 200, 2000}) {
        double squares = 0;
        int count = 0;
        for (int draw = 0; draw < 40; ++draw) {
          const std::vector<double> x = shifted(rng, n, mean);
          const Moments<Enclosure<double>> e = moments<Enclosure<double>>(x, way);
          EXPECT_NEAR(e.variance.v, moments<double>(x, Way::two_pass).variance, 1e-9 * (1 + mean * mean));
          const double d = std::sqrt(static_cast<double>(e.variance.variance()));
          for (const SumOrder& order : kOrders) {
            working_order() = order;
            const Moments<Working> y = moments<Working>(x, way);
            const double off = y.variance.v - e.variance.v;
            EXPECT_LE(std::fabs(off), e.variance.e) << static_cast<int>(way) << " mean " << mean << " n " << n;
            EXPECT_LE(std::fabs(y.mean.v - e.mean.v), e.mean.e);
            if (!(d > 0)) continue;
            EXPECT_LT(std::fabs(off), 8 * d) << static_cast<int>(way) << " mean " << mean << " n " << n;
            squares += off * off / d / d;
            ++count;
          }
        }
        const double rms = std::sqrt(squares / count);
        EXPECT_LT(rms, 1) << static_cast<int>(way) << " mean " << mean << " n " << n;
        EXPECT_GT(rms, 0.05) << static_cast<int>(way) << " mean " << mean << " n " << n;
      }
  working_order() = SumOrder();
}

// Their sum is exact; a third of them is not, and a running mean divides by each count.
TEST(Moments, RunningOnesOfIntegersAreInexact) {
  const ProfileScope scope(inner_f32(DType::f32));
  const std::vector<double> x{1, 0, 0, 1, 1, 0, 1, 0};
  const Moments<Enclosure<double>> e = moments<Enclosure<double>>(x, Way::running);
  const Moments<Working> y = moments<Working>(x, Way::running);
  EXPECT_GT(e.mean.e, 0);
  EXPECT_LE(std::fabs(y.mean.v - 0.5), e.mean.e);
  EXPECT_LE(std::fabs(y.variance.v - 0.25), e.variance.e);
}

TEST(Moments, OnePassIsNoRoundingWhereTheMeanIsLarge) {
  const ProfileScope scope(inner_f32(DType::f32));
  Rng rng(2);
  for (int draw = 0; draw < 20; ++draw) {
    const std::vector<double> x = shifted(rng, 200, 1000);
    const Enclosure<double> two = moments<Enclosure<double>>(x, Way::two_pass).variance;
    const double off = std::fabs(moments<Working>(x, Way::one_pass).variance.v - two.v);
    EXPECT_GT(off, 8 * std::sqrt(static_cast<double>(two.variance())));
  }
}

}  // namespace
}  // namespace opdiff
