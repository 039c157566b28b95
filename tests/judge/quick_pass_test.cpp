// One pass over a tensor must say what the many of judge/attempt.h say.
#include "judge/quick_pass.h"

#include <gtest/gtest.h>

#include "judge/attack.h"
#include "judge/attempt.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

constexpr int kCases = 12;

void expect_same(const Verdict& quick, const Verdict& slow) {
  EXPECT_EQ(quick.rung, slow.rung);
  EXPECT_EQ(quick.profile, slow.profile);
  EXPECT_EQ(quick.explanation, slow.explanation);
  EXPECT_EQ(quick.counts, slow.counts);
  EXPECT_EQ(quick.unproven_elements, slow.unproven_elements);
  EXPECT_EQ(quick.unspecified_elements, slow.unspecified_elements);
  EXPECT_EQ(quick.excess, slow.excess);
  EXPECT_EQ(quick.z_rms, slow.z_rms);
  EXPECT_EQ(quick.z_mean, slow.z_mean);
  EXPECT_EQ(quick.z_max, slow.z_max);
  EXPECT_EQ(quick.z_rms_limit, slow.z_rms_limit);
  EXPECT_EQ(quick.z_max_limit, slow.z_max_limit);
  EXPECT_EQ(quick.worst.index, slow.worst.index);
  EXPECT_EQ(quick.worst.deviation, slow.worst.deviation);
  EXPECT_EQ(quick.figures.rmse, slow.figures.rmse);
  EXPECT_EQ(quick.figures.max_ulp, slow.figures.max_ulp);
}

// Honest results and, every other time, one element far off.
int compare(const MetaOperator& op, bool spoil) {
  int passed = 0;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Sample sample = make_sample(op, DType::f32, 5, index);
    const std::vector<const Tensor*> inputs = sample.pointers();
    const Call call(sample.node, sample.opset, inputs);
    const Profile profile = inner_f32(DType::f32);
    const std::vector<Tensor> right = values(op, call), made = work(op, call, profile, 0);
    const std::vector<EnclosedTensor> yardstick = enclose(op, call, profile, 0);
    for (std::size_t k = 0; k < yardstick.size() && k < made.size(); ++k) {
      Tensor got = made[k].clone();
      if (got.dtype() != DType::f32 || got.size() == 0 || right[k].bit_equal(got)) continue;
      if (spoil) {
        std::vector<double> y = got.to_doubles();
        y[y.size() / 2] += 20 * yardstick[k].deviation[y.size() / 2];
        got = Tensor::from_doubles(DType::f32, got.shape(), y);
      }
      const int output = static_cast<int>(k);
      const auto quick = quick_pass(op, call, output, got, right[k], yardstick[k], profile.name, "formula", true);
      Attempt attempt(op, call, output, got, right[k]);
      const bool was_exact = attempt.done();
      const bool explained = was_exact || attempt.explain(Rung::rounding, yardstick[k], profile.name, "formula");
      EXPECT_EQ(quick.has_value(), explained && !was_exact && !op.unspecified) << op.name << " case " << index;
      if (!quick || !explained) continue;
      SCOPED_TRACE(std::string(op.name) + " case " + std::to_string(index));
      expect_same(*quick, attempt.verdict());
      ++passed;
    }
  }
  return passed;
}

TEST(QuickPass, SaysWhatTheAttemptSays) {
  int honest = 0;
  for (const auto& operators : {all_operators(), all_gradients()})
    for (const MetaOperator* op : operators) {
      if (!op->kernels.working || !(op->types & type_bit(DType::f32)) || op->exact || op->movement) continue;
      honest += compare(*op, false);
      compare(*op, true);
    }
  EXPECT_GT(honest, 300);
}

}  // namespace
}  // namespace opdiff
