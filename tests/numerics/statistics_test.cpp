// Quantiles against published values; profiles against the formats' definitions; orders of summation; the thread pool.
#include "numerics/statistics.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "numerics/budget.h"
#include "numerics/order.h"
#include "numerics/parallel.h"
#include "numerics/profile.h"

namespace opdiff {
namespace {

TEST(Statistics, AreTheTables) {
  // Abramowitz and Stegun, tables 26.5 and 26.8.
  EXPECT_NEAR(normal_quantile(0.025), 1.959963985, 1e-8);
  EXPECT_NEAR(normal_quantile(1e-9), 5.997807015, 1e-8);
  EXPECT_NEAR(rms_quantile(1, 0.05), std::sqrt(3.841458821), 1e-8);
  EXPECT_NEAR(rms_quantile(10, 0.05), std::sqrt(18.30703805 / 10), 1e-8);
  EXPECT_NEAR(rms_quantile(100, 0.005), std::sqrt(140.1694894 / 100), 1e-8);
  EXPECT_NEAR(normal_tail(1.959963985), 0.05, 1e-9);
  EXPECT_EQ(normal_tail(-2), normal_tail(2));
  EXPECT_EQ(normal_tail(HUGE_VAL), 0);
  EXPECT_EQ(rms_tail(3, HUGE_VAL), 0);
}

TEST(Statistics, TailsInvertQuantiles) {
  for (const std::int64_t n : {1, 2, 16, 1000, 1000000, 1000000000})
    for (const double p : {0.5, 1e-3, 1e-9, 1e-15})
      EXPECT_NEAR(rms_tail(n, rms_quantile(n, p)) / p, 1, 1e-6) << n << " " << p;
}

TEST(Profiles, AreTheFormats) {
  const auto check = [](const Profile& p, double u, double eta, double lambda, double max) {
    const ProfileScope scope(p);
    EXPECT_EQ(arithmetic().u, u);
    EXPECT_EQ(arithmetic().eta, eta);
    EXPECT_EQ(arithmetic().lambda, lambda);
    EXPECT_EQ(arithmetic().max, max);
  };
  using F = std::numeric_limits<float>;
  using D = std::numeric_limits<double>;
  check(inner_f32(DType::f32), F::epsilon() / 2, F::denorm_min(), F::min(), F::max());
  check(inner_f32(DType::f16), F::epsilon() / 2, F::denorm_min(), F::min(), F::max());
  check(inner_f32(DType::f64), D::epsilon() / 2, D::denorm_min(), D::min(), D::max());
  check(inner_storage(DType::f16), 0x1p-11, 0x1p-24, 0x1p-14, 65504);
  check(inner_storage(DType::bf16), 0x1p-8, 0x1p-133, 0x1p-126, 0x1.fep127);
  check(inner_storage(DType::f32), F::epsilon() / 2, F::denorm_min(), F::min(), F::max());
  EXPECT_TRUE(profiles_differ(DType::f16));
  EXPECT_FALSE(profiles_differ(DType::f32));
  EXPECT_EQ(inner_storage(DType::f16).sum, kF32);
}

TEST(Profiles, ScopesNest) {
  const double outer = arithmetic().u;
  {
    const ProfileScope a(inner_storage(DType::bf16));
    {
      const ProfileScope b(inner_f32(DType::f64));
      EXPECT_EQ(arithmetic().u, 0x1p-53);
    }
    EXPECT_EQ(arithmetic().u, 0x1p-8);
    parallel_for(64, [](std::int64_t) { EXPECT_EQ(arithmetic().u, 0x1p-8); });
  }
  EXPECT_EQ(arithmetic().u, outer);
}

TEST(Representable, NumbersOfEveryFormat) {
  EXPECT_TRUE(representable(65504, kF16));
  EXPECT_FALSE(representable(65505, kF16));
  EXPECT_TRUE(representable(0x1p-24, kF16));
  EXPECT_FALSE(representable(0x1p-25, kF16));
  EXPECT_FALSE(representable(0.1, kF32));
  EXPECT_TRUE(representable(static_cast<double>(0.1f), kF32));
  EXPECT_TRUE(representable(0.1, kF64));
  EXPECT_TRUE(representable(257, kTF32));
  EXPECT_FALSE(representable(257, kBF16));
}

TEST(Budget, HasARowForEveryFunction) {
  for (const BudgetRow& row : budget_table()) {
    EXPECT_EQ(budget(row.function), row.ulps) << row.name;
    EXPECT_FALSE(row.source.empty());
  }
  EXPECT_EQ(largest_approximation_ulps(24), 4096);
  EXPECT_EQ(largest_approximation_ulps(11), 32);
  EXPECT_EQ(largest_approximation_ulps(8), 16);
}

TEST(Orders, AreWhatTheySay) {
  const float big = 0x1p24f;
  const std::vector<double> x{big, 1, 1, 1, 1};
  const auto sum = [&](SumOrder::Kind kind, int lanes = 1) {
    return sum_in_order(x, {}, {kind, lanes, false, 0}, kF32);
  };
  EXPECT_EQ(sum(SumOrder::Kind::sequential), big);  // each 1 is lost
  EXPECT_EQ(sum(SumOrder::Kind::reversed), big + 4);
  EXPECT_EQ(sum(SumOrder::Kind::wide), big + 4);
  EXPECT_EQ(sum(SumOrder::Kind::pairwise), big + 4);  // (big + 1) + (1 + (1 + 1)) is big + 3, a tie
  EXPECT_EQ(sum(SumOrder::Kind::lanes, 2), big + 2);  // big + 1 + 1 in one lane, 2 in the other
  EXPECT_EQ(sum_in_order({}, {}, SumOrder(), kF32), 0);
  const double third = 1.0f / 3;
  EXPECT_EQ(sum_in_order(std::vector<double>{third, -1}, std::vector<double>{third, static_cast<float>(third * third)},
                         {SumOrder::Kind::sequential, 1, false, 0}, kF32),
            0);
  EXPECT_NE(sum_in_order(std::vector<double>{-1, third}, std::vector<double>{static_cast<float>(third * third), third},
                         {SumOrder::Kind::sequential, 1, true, 0}, kF32),
            0);
}

TEST(Parallel, VisitsEveryPieceOnce) {
  for (const int threads : {1, 3, 8}) {
    set_threads(threads);
    std::vector<std::atomic<int>> visits(1000);
    parallel_for(1000, [&](std::int64_t i) {
      ++visits[static_cast<std::size_t>(i)];
      parallel_for(2, [&](std::int64_t) {});
    });
    for (const auto& v : visits) EXPECT_EQ(v, 1);
    parallel_for(0, [](std::int64_t) { FAIL(); });
  }
  set_threads(0);
}

}  // namespace
}  // namespace opdiff
