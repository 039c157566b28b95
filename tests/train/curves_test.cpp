#include "train/curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "train/checkpoint.h"
#include "train/curve_noise.h"

namespace opdiff {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Curve : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  static Curves curves() {
    Curves result;
    result.steps = {{2.3025850929940455, 7, 64}, {1.0 / 3, 9, 64}, {0.1, 3, 32}};
    result.tests = {{2, 0.25, 90, 100}};
    return result;
  }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("curves-{}", getpid());
};

void expect_same(const Curves& a, const Curves& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].right, b.steps[i].right);
    EXPECT_EQ(a.steps[i].rows, b.steps[i].rows);
  }
  ASSERT_EQ(a.tests.size(), b.tests.size());
  for (std::size_t i = 0; i < a.tests.size(); ++i) {
    EXPECT_EQ(a.tests[i].step, b.tests[i].step);
    EXPECT_EQ(a.tests[i].loss, b.tests[i].loss);
    EXPECT_EQ(a.tests[i].right, b.tests[i].right);
    EXPECT_EQ(a.tests[i].rows, b.tests[i].rows);
  }
}

TEST_F(Curve, CsvReadsBackBitForBit) {
  const std::string csv = curves_csv(curves());
  EXPECT_THAT(csv, HasSubstr("\n2,0.3333333333333333,0.140625,0.25,0.9,64,100\n"));
  std::ofstream(folder_ / "c.csv") << csv;
  const auto read = read_curves_csv(folder_ / "c.csv");
  ASSERT_TRUE(read) << read.error().message;
  expect_same(*read, curves());
  std::ofstream(folder_ / "c.csv") << csv + "4,x,,,,1,\n";
  EXPECT_THAT(read_curves_csv(folder_ / "c.csv").error().message, HasSubstr("line 5: 'x' is no number"));
  const auto refused = [&](const std::string& text) {
    std::ofstream(folder_ / "c.csv") << text;
    const auto result = read_curves_csv(folder_ / "c.csv");
    return result ? std::string() : result.error().message;
  };
  EXPECT_THAT(refused(""), HasSubstr("is cut off"));
  EXPECT_THAT(refused(csv.substr(0, csv.size() - 1)), HasSubstr("is cut off"));
  EXPECT_THAT(refused(csv + "7,0.1,,,,1,\n"), HasSubstr("step 7, not 4"));
  EXPECT_THAT(refused(csv + "4,0.1,1.5,,,1,\n"), HasSubstr("out of range"));
  EXPECT_THAT(refused(csv + "4,0.1,0.5,,,1e300,\n"), HasSubstr("out of range"));
}

TEST_F(Curve, Checkpoints) {
  Checkpoint checkpoint;
  checkpoint.step = 3;
  checkpoint.epoch = 1;
  checkpoint.place = 1;
  checkpoint.curves = curves();
  checkpoint.made_with = {{"batch", "64"}};
  checkpoint.state["fc.weight/exp_avg"] = Tensor::scalar_like(DType::f32, 0.1f);
  ASSERT_TRUE(write_checkpoint(folder_, checkpoint));
  checkpoint.step = 4;
  ASSERT_TRUE(write_checkpoint(folder_, checkpoint));
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-3.npz"));
  auto read = read_checkpoint(folder_);
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->step, 4);
  EXPECT_EQ((*read)->made_with.at("batch"), "64");
  EXPECT_TRUE((*read)->state.at("fc.weight/exp_avg").bit_equal(checkpoint.state.at("fc.weight/exp_avg")));
  expect_same((*read)->curves, curves());

  // A kill between the archive and the JSON: the old pair is still there.
  checkpoint.step = 5;
  const auto json = read_file(folder_ / "checkpoint.json", 1 << 20);
  const auto archive = read_file(folder_ / "checkpoint-4.npz", 1 << 20);
  ASSERT_TRUE(write_checkpoint(folder_, checkpoint));
  std::ofstream(folder_ / "checkpoint.json") << *json;
  std::ofstream(folder_ / "checkpoint-4.npz") << *archive;
  EXPECT_EQ((*read_checkpoint(folder_))->step, 4);

  std::ofstream(folder_ / "checkpoint-4.npz", std::ios::app) << "x";
  EXPECT_THAT(read_checkpoint(folder_).error().message, HasSubstr("is damaged"));
  std::ofstream(folder_ / "checkpoint.json") << "{";
  EXPECT_THAT(read_checkpoint(folder_).error().message, HasSubstr("no checkpoint"));
}

Curves ending_with(const std::vector<double>& test_losses, const std::vector<std::int64_t>& right) {
  Curves result;
  for (std::size_t epoch = 0; epoch < test_losses.size(); ++epoch) {
    for (int step = 0; step < 3; ++step) result.steps.push_back({2 * test_losses[epoch], 8, 10});
    result.tests.push_back({static_cast<std::int64_t>(result.steps.size()), test_losses[epoch], right[epoch], 100});
  }
  return result;
}

TEST(CurveNoise, DistancesAreInUnitsOfTheNoisyTrainings) {
  const Curves base = ending_with({1.0, 0.5}, {80, 90});
  const std::vector<Curves> noisy = {ending_with({1.1, 0.6}, {81, 91}), ending_with({0.9, 0.4}, {79, 89})};
  const auto same = read_curves(base, base, noisy);
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->rms, 0);
  EXPECT_TRUE(same->inside);
  const auto near = read_curves(ending_with({1.2, 0.3}, {80, 90}), base, noisy);
  EXPECT_NEAR(near->rms, 2, 1e-9);
  EXPECT_NEAR(near->max, 2, 1e-9);
  EXPECT_TRUE(near->inside);
  const auto far = read_curves(ending_with({1.0, 0.5}, {76, 86}), base, noisy);
  EXPECT_NEAR(far->rms, 4, 1e-9);
  EXPECT_EQ(far->worst, "test accuracy");
  EXPECT_FALSE(far->inside);
}

// An interrupted training was tested in the middle of an epoch, too.
TEST(CurveNoise, TestsAreComparedAfterTheSameSteps) {
  const Curves base = ending_with({1.0, 0.5}, {80, 90});
  const std::vector<Curves> noisy = {ending_with({1.1, 0.6}, {81, 91}), ending_with({0.9, 0.4}, {79, 89})};
  Curves resumed = base;
  resumed.tests.insert(resumed.tests.begin(), {2, 7.0, 10, 100});
  EXPECT_EQ(read_curves(base, resumed, noisy)->rms, 0);
  EXPECT_EQ(read_curves(resumed, base, noisy)->rms, 0);
  EXPECT_FALSE(read_curves(ending_with({1.0, 0.5}, {76, 86}), resumed, noisy)->inside);
}

TEST(CurveNoise, EpochsThatOneHasNotReachedDoNotCount) {
  const Curves base = ending_with({1.0, 0.5}, {80, 90});
  const std::vector<Curves> noisy = {ending_with({1.1}, {81}), ending_with({0.9, 0.4}, {79, 89})};
  EXPECT_TRUE(read_curves(ending_with({1.0, 5.0}, {80, 10}), base, noisy)->inside);
  EXPECT_FALSE(read_curves(base, base, std::span(noisy).first(1)));
  EXPECT_FALSE(read_curves({}, base, noisy));
}

TEST(CurveNoise, ParametersAreOffByARounding) {
  const Tensor x = Tensor::from_doubles(DType::f32, {4}, std::vector<double>{1, -3, 0, 1e-3});
  const TensorMap state = {{"w", x}, {"step", Tensor::scalar_like(DType::i64, 7)}};
  const TensorMap one = off_by_a_rounding(state, 1), two = off_by_a_rounding(state, 2);
  EXPECT_TRUE(one.at("step").bit_equal(state.at("step")));
  EXPECT_TRUE(one.at("w").bit_equal(off_by_a_rounding(state, 1).at("w")));
  bool differ = false;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::fabs(one.at("w").at(i) - x.at(i)), 0x1p-22 * std::fabs(x.at(i)));
    differ |= one.at("w").at(i) != two.at("w").at(i);
  }
  EXPECT_TRUE(differ);
}

TEST_F(Curve, NoCheckpointIsNoError) {
  const auto read = read_checkpoint(folder_ / "none");
  ASSERT_TRUE(read);
  EXPECT_FALSE(*read);
}

}  // namespace
}  // namespace opdiff
