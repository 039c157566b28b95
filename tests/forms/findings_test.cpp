// One fault seen a thousand times is one finding, whatever the shapes; two faults are two.
#include "forms/findings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/rng.h"

namespace opdiff {
namespace {

using Fault = std::function<void(std::vector<double>&, const Shape&, Rng&)>;

Tensor tensor_of(const Shape& shape, const std::vector<double>& values) {
  return Tensor::from_doubles(DType::f64, shape, values);
}

// A tensor of a drawn shape with honest errors of half a floor, and the fault on top.
Observation observe(Rng& rng, const Fault& fault) {
  const Shape shape = {rng.integer(1, 4), rng.integer(1, 6), rng.integer(1, 7), rng.integer(1, 7)};
  std::vector<double> expected(static_cast<std::size_t>(element_count(shape))), floor(expected.size());
  std::vector<double> got(expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = rng.normal();
    floor[i] = 1e-7 * std::fabs(expected[i]) + 1e-9;
  }
  got = expected;
  fault(got, shape, rng);
  for (std::size_t i = 0; i < got.size(); ++i) got[i] += rng.uniform(-0.5, 0.5) * floor[i];
  Observation seen;
  seen.kind = {"Conv", "kernel", "", "torch", "float", "wrong values"};
  seen.patterns = error_patterns(tensor_of(shape, got), tensor_of(shape, expected), floor, 0x1p-53);
  seen.form = "conv-relu";
  seen.parameters = {{"stride", 2}, {"h", shape[2]}};
  return seen;
}

void scale(std::vector<double>& values, const Shape&, Rng&) {
  for (double& v : values) v *= 1.001;
}
void shift(std::vector<double>& values, const Shape&, Rng&) {
  for (double& v : values) v += 0.25;
}
void last_element(std::vector<double>& values, const Shape&, Rng&) { values.back() += 1; }
void first_channel(std::vector<double>& values, const Shape& shape, Rng& rng) {
  const std::int64_t plane = shape[2] * shape[3];
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t i = 0; i < plane; ++i) values[static_cast<std::size_t>(n * shape[1] * plane + i)] += rng.normal();
}
void anything(std::vector<double>& values, const Shape&, Rng& rng) {
  for (double& v : values)
    if (rng.chance(0.5)) v += rng.normal();
}

std::vector<Observation> observations(const std::vector<Fault>& faults, int count) {
  Rng rng(5);
  std::vector<Observation> all;
  for (int i = 0; i < count; ++i) all.push_back(observe(rng, faults[static_cast<std::size_t>(i) % faults.size()]));
  return all;
}

TEST(Findings, OneFaultAThousandTimesIsOneFinding) {
  const std::vector<std::pair<Fault, std::string>> faults = {
      {scale, "scaled"}, {shift, "shifted"}, {last_element, "one element"}, {anything, "scattered"}};
  for (const auto& [fault, pattern] : faults) {
    const std::vector<Finding> findings = find(observations({fault}, 1000));
    ASSERT_EQ(findings.size(), 1u) << pattern;
    EXPECT_EQ(findings[0].count, 1000);
    EXPECT_EQ(findings[0].pattern, pattern);
    EXPECT_EQ(findings[0].common, (Parameters{{"stride", 2}}));
  }
  const std::vector<Finding> channel = find(observations({first_channel}, 1000));
  ASSERT_EQ(channel.size(), 1u);
  EXPECT_EQ(channel[0].pattern, "one slice of axis 1");
}

TEST(Findings, TwoFaultsOfOneOperatorAreTwo) {
  for (const auto& [a, b] : {std::pair<Fault, Fault>{scale, last_element}, {scale, shift}, {shift, first_channel}}) {
    const std::vector<Finding> findings = find(observations({a, b}, 1000));
    ASSERT_EQ(findings.size(), 2u);
    EXPECT_EQ(findings[0].count + findings[1].count, 1000);
    EXPECT_GE(findings[1].count, 300);  // what fits both counts with the larger
  }
}

TEST(Findings, AnotherKindIsAnotherFinding) {
  std::vector<Observation> all = observations({scale}, 4);
  all[1].kind.backend = "onednn";
  all[2].kind.dtype = "bfloat16";
  all[3].kind.stage = "fusion-or-rewrite";
  EXPECT_EQ(find(all).size(), 4u);
}

TEST(Findings, CrashesHaveNoPattern) {
  std::vector<Observation> all = observations({scale}, 3);
  all[0].kind.outcome = all[1].kind.outcome = "crash: signal 11";
  all[0].patterns.clear();
  all[1].patterns.clear();
  const std::vector<Finding> findings = find(all);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_NE(findings[0].signature().find("crash"), std::string::npos);
}

}  // namespace
}  // namespace opdiff
