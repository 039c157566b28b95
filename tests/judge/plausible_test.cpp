// Odds: the tensor and its slices, duplicates once, groups once; the classic figures by hand; the noise floor's
// comparison.
#include "judge/plausible.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "judge/figures.h"
#include "judge/judge.h"
#include "numerics/statistics.h"

namespace opdiff {
namespace {

struct Data {
  Shape shape;
  std::vector<double> z, centre, got;
  std::vector<char> counts;
  std::optional<std::vector<int>> groups;

  explicit Data(Shape s, double sigma = 0.5, std::uint64_t seed = 1) : shape(std::move(s)) {
    Rng rng(seed);
    for (std::int64_t i = 0; i < element_count(shape); ++i) {
      z.push_back(sigma * rng.normal());
      centre.push_back(static_cast<double>(i));
      got.push_back(rng.normal());
      counts.push_back(1);
    }
  }
  Plausibility judge() const { return judge_scores({shape, z, counts, centre, got, groups}); }
};

TEST(Plausible, HonestScoresAre) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{100, 3}, Shape{2, 3, 4, 5}, Shape{10000}}) {
    const Plausibility p = Data(shape, 0.77).judge();
    EXPECT_TRUE(p.plausible) << to_string(shape);
    EXPECT_EQ(p.odds, 1);
  }
  EXPECT_TRUE(judge_scores({{0, 4}, {}, {}, {}, {}, std::nullopt}).plausible);
}

TEST(Plausible, RootMeanSquareHasALimit) {
  Data d({2000}, 2.5);
  const Plausibility p = d.judge();
  EXPECT_FALSE(p.plausible);
  EXPECT_LT(p.odds, 1e-9);
  EXPECT_NEAR(p.rms, 2.5, 0.2);
  d.counts.assign(2000, 0);
  EXPECT_TRUE(d.judge().plausible) << "nothing counts";
}

TEST(Plausible, LimitsAreTheSpecifications) {
  EXPECT_EQ(max_limit(1), 8);
  EXPECT_EQ(max_limit(0), 8);
  EXPECT_EQ(rms_limit(100000, 1), 2);
  EXPECT_NEAR(rms_limit(4, 1), 0.77 * rms_quantile(4, 1e-9), 1e-12);
  EXPECT_GT(rms_limit(4, 100), rms_limit(4, 1));
  EXPECT_GT(max_limit(std::int64_t{1} << 40), 8) << "the normal quantile wins for many elements";
}

TEST(Plausible, OneElementMayNotStandOut) {
  Data d({1000});
  d.z[77] = 7.9;  // also a slice of one element
  EXPECT_TRUE(d.judge().plausible);
  d.z[77] = -8.1;
  EXPECT_FALSE(d.judge().plausible);
  EXPECT_EQ(d.judge().max, 8.1);
}

TEST(Plausible, SlicesAreLookedAt) {
  for (const bool row : {true, false}) {
    Data d({500, 400});
    for (std::int64_t k = 0; k < (row ? 400 : 500); ++k)
      d.z[static_cast<std::size_t>(row ? 123 * 400 + k : k * 400 + 123)] = 3;
    EXPECT_FALSE(d.judge().plausible) << row;
    EXPECT_LT(d.judge().odds, 1e-9);
  }
}

TEST(Plausible, DuplicatesCountOnce) {
  Data d({400});
  for (std::size_t i = 0; i < 400; ++i) {
    d.z[i] = i % 2 ? 3.5 : 0.5;
    d.centre[i] = static_cast<double>(i % 2);
    d.got[i] = static_cast<double>(i % 2);
  }
  EXPECT_TRUE(d.judge().plausible) << "two independent scores";
  for (std::size_t i = 0; i < 400; ++i) d.got[i] = static_cast<double>(i);
  EXPECT_FALSE(d.judge().plausible);
}

TEST(Plausible, GroupsCountOnce) {
  Data d({3, 400});
  for (std::size_t i = 0; i < 400; ++i) d.z[i] = 3.5;  // one row errs together: its mean is off by 3.5
  EXPECT_FALSE(d.judge().plausible);
  d.groups = std::vector<int>{0};
  EXPECT_TRUE(d.judge().plausible);
  Data many({400, 3});
  for (double& z : many.z) z = 3.5;
  many.groups = std::vector<int>{0};
  EXPECT_FALSE(many.judge().plausible) << "400 rows";
}

TEST(ClassicFigures, AreTheHandComputedOnes) {
  const std::vector<double> c{1, -2, 4, 0}, y{1.5, -2, 3, 0.25};
  const ClassicFigures f = classic_figures(y, c, kF32);
  EXPECT_EQ(f.max_absolute, 1);
  EXPECT_EQ(f.mean_absolute, 1.75 / 4);
  EXPECT_EQ(f.max_relative, 0.5);
  EXPECT_EQ(f.mean_relative, 0.75 / 3);
  EXPECT_NEAR(f.rmse, std::sqrt((0.25 + 1 + 0.0625) / 4), 1e-15);
  EXPECT_NEAR(f.psnr, 20 * std::log10(4 / f.rmse), 1e-12);
  EXPECT_NEAR(f.cosine, (1.5 + 4 + 12) / std::sqrt((2.25 + 4 + 9 + 0.0625) * 21), 1e-12);
  EXPECT_NEAR(f.share_beyond_1e3, 2.0 / 3, 1e-15);
  EXPECT_EQ(f.max_ulp, 0.25 / kF32.eta());
  const std::vector<double> one{1}, next{1 + 0x1p-23};
  EXPECT_EQ(classic_figures(next, one, kF32).max_ulp, 1);
  const ClassicFigures same = classic_figures(c, c, kF32);
  EXPECT_EQ(same.rmse, 0);
  EXPECT_EQ(same.psnr, HUGE_VAL);
  EXPECT_NEAR(same.cosine, 1, 1e-15);
}

TEST(ClassicFigures, HoldWhatIsHuge) {
  const std::vector<double> c{1e200, -3e200}, y{1e200, -3e200 * (1 + 1e-10)};
  const ClassicFigures f = classic_figures(y, c, kF64);
  EXPECT_NEAR(f.cosine, 1, 1e-12);
  EXPECT_NEAR(f.rmse / 3e190, std::sqrt(0.5), 1e-5);
}

TEST(ClassicFigures, LeaveOutWhatIsNotFinite) {
  const std::vector<double> c{1, HUGE_VAL, std::nan("")}, y{2, HUGE_VAL, 5};
  const ClassicFigures f = classic_figures(y, c, kF32);
  EXPECT_EQ(f.max_absolute, 1);
  EXPECT_EQ(f.mean_absolute, 1);
  const ClassicFigures none = classic_figures({}, {}, kF32);
  EXPECT_EQ(none.max_absolute, 0);
  EXPECT_EQ(none.cosine, 1);
}

TEST(NoiseFloorComparison, SuspectsWhatStandsOut) {
  const auto f32 = [](std::vector<double> v) {
    return Tensor::from_doubles(DType::f32, {static_cast<std::int64_t>(v.size())}, v);
  };
  const std::vector<double> floor(4, 0.25);
  const Tensor reference = f32({1, 2, 3, 4});
  const FloorComparison close = compare_with_floor(f32({1.25, 2, 3, 4}), reference, floor);
  EXPECT_EQ(close.max, 1);
  EXPECT_NEAR(close.rms, 0.5 * 3 / 3.46, 0.001) << "four elements: 3.46 is their limit";
  EXPECT_FALSE(close.suspect);
  EXPECT_TRUE(compare_with_floor(f32({1 + 2.75, 2, 3, 4}), reference, floor).suspect) << "largest above 10";
  EXPECT_TRUE(compare_with_floor(f32({2, 3, 4, 5}), reference, floor).suspect) << "root mean square above 3";
  const std::vector<double> one{0.25};
  EXPECT_FALSE(compare_with_floor(f32({1 + 0.8}), f32({1}), one).suspect) << "3.2 of a single element is chance";
  EXPECT_TRUE(compare_with_floor(f32({1 + 1.6}), f32({1}), one).suspect) << "6.4 is not";
  const FloorComparison nan = compare_with_floor(f32({std::nan(""), 2, 3, 4}), reference, floor);
  EXPECT_TRUE(nan.suspect && nan.non_finite_differs);
  EXPECT_FALSE(compare_with_floor(f32({HUGE_VAL}), f32({HUGE_VAL}), std::vector<double>{1}).suspect);
  EXPECT_TRUE(compare_with_floor(f32({HUGE_VAL}), f32({-HUGE_VAL}), std::vector<double>{1}).suspect);
  EXPECT_TRUE(compare_with_floor(f32({1}), f32({1, 2}), std::vector<double>{1, 1}).suspect) << "another shape";
}

TEST(Rungs, HaveNames) {
  for (int k = 0; k < kRungCount; ++k) EXPECT_EQ(parse_rung(to_string(static_cast<Rung>(k))), static_cast<Rung>(k));
  EXPECT_EQ(to_string(Rung::flush_to_zero), "flush-to-zero");
  EXPECT_EQ(parse_rung("good"), std::nullopt);
}

}  // namespace
}  // namespace opdiff
