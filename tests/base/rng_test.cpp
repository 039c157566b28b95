// Random numbers: the same everywhere for the same seed, and distributed as they say.
#include "base/rng.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace opdiff {
namespace {

// From an implementation in Python; the first value is also the published one of xoshiro256++ seeded by
// SplitMix64(0).
TEST(Rng, KnownValues) {
  Rng rng(0);
  EXPECT_EQ(rng.next(), 0x53175d61490b23dfu);
  EXPECT_EQ(rng.next(), 0x61da6f3dc380d507u);
  EXPECT_EQ(rng.next(), 0x5c0fdf91ec9a7bfcu);
  Rng named(7, "Conv", 17);
  EXPECT_EQ(named.next(), 0x3aa1fae2fd0f791bu);
  EXPECT_EQ(named.next(), 0xc23e4cd86a28a3a8u);
  EXPECT_EQ(named.next(), 0xdd7209387c308570u);
}

TEST(Rng, StreamsDifferByNameAndIndex) {
  EXPECT_NE(Rng(1, "Conv").next(), Rng(1, "Gemm").next());
  EXPECT_NE(Rng(1, "Conv", 0).next(), Rng(1, "Conv", 1).next());
  EXPECT_NE(Rng(1, "Conv").next(), Rng(2, "Conv").next());
  EXPECT_EQ(Rng(1, "Conv", 3).next(), Rng(1, "Conv", 3).next());
}

TEST(Rng, Ranges) {
  Rng rng(5);
  std::vector<int> seen(5, 0);
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t k = rng.integer(-2, 2);
    ASSERT_TRUE(k >= -2 && k <= 2);
    ++seen[static_cast<std::size_t>(k + 2)];
    const double u = rng.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    const double v = rng.uniform(-3, 7);
    ASSERT_TRUE(v >= -3 && v < 7);
  }
  for (const int count : seen) EXPECT_GT(count, 100);  // 200 expected, deviation 12.6
  EXPECT_EQ(rng.integer(3, 3), 3);
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  bool negative = false, positive = false;
  for (int i = 0; i < 64; ++i) (rng.integer(kMin, kMax) < 0 ? negative : positive) = true;
  EXPECT_TRUE(negative && positive);
}

TEST(Rng, NormalHasItsMoments) {
  Rng rng(11);
  constexpr int kCount = 100000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = rng.normal();
    sum += x;
    squares += x * x;
  }
  // Deviations 0.0032 and 0.0045.
  EXPECT_NEAR(sum / kCount, 0, 0.016);
  EXPECT_NEAR(squares / kCount, 1, 0.023);
}

TEST(Rng, PickAndChance) {
  Rng rng(3);
  const std::vector<int> values = {4, 5};
  int fours = 0, hits = 0;
  for (int i = 0; i < 1000; ++i) {
    fours += rng.pick(values) == 4;
    hits += rng.chance(0.25);
  }
  EXPECT_NEAR(fours, 500, 80);
  EXPECT_NEAR(hits, 250, 70);
}

}  // namespace
}  // namespace opdiff
