// One pass over a tensor must say what the many of judge/attempt.h say.
#include "judge/quick_pass.h"

#include <gtest/gtest.h>

#include <mutex>

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
      QuickPass pass(op, call, output, got, right[k], profile, "formula", true);
      pass.look(yardstick[k]);
      const auto quick = pass.verdict();
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

// Pieces of odd sizes from last to first, and what a formula hands out piece by piece, must say what the whole says.
TEST(QuickPass, PiecesInAnyOrderSayWhatTheWholeSays) {
  constexpr std::size_t kPiece = 7;
  int compared = 0, streamed = 0;
  for (const auto& operators : {all_operators(), all_gradients()})
    for (const MetaOperator* op : operators) {
      if (!op->kernels.working || !(op->types & type_bit(DType::f32)) || op->exact || op->movement) continue;
      for (std::uint64_t index = 0; index < kCases; ++index) {
        const Sample sample = make_sample(*op, DType::f32, 6, index);
        const std::vector<const Tensor*> inputs = sample.pointers();
        const Call call(sample.node, sample.opset, inputs);
        const Profile profile = inner_f32(DType::f32);
        const std::vector<Tensor> right = values(*op, call), made = work(*op, call, profile, 0);
        const std::vector<std::vector<Enclosure<double>>> whole = enclosures(*op, call, profile, 0);
        for (std::size_t k = 0; k < whole.size() && k < made.size(); ++k) {
          if (made[k].dtype() != DType::f32 || made[k].size() == 0) continue;
          const int output = static_cast<int>(k);
          SCOPED_TRACE(std::string(op->name) + " case " + std::to_string(index));
          const auto quick = [&](const auto& look) {
            QuickPass pass(*op, call, output, made[k], right[k], profile, "formula", true);
            look(pass);
            return pass.verdict();
          };
          const auto all = quick([&](QuickPass& pass) { pass.look(0, whole[k]); });
          const auto pieces = quick([&](QuickPass& pass) {
            for (std::size_t end = whole[k].size(); end > 0; end -= std::min(kPiece, end)) {
              const std::size_t first = end - std::min(kPiece, end);
              pass.look(static_cast<std::int64_t>(first), std::span(whole[k]).subspan(first, end - first));
            }
          });
          std::size_t taken = 0;
          std::mutex mutex;
          const auto handed = quick([&](QuickPass& pass) {
            enclosures(*op, call, profile, 0, output,
                       [&](std::int64_t first, std::span<const Enclosure<double>> piece) {
                         pass.look(first, piece);
                         const std::lock_guard lock(mutex);
                         taken += piece.size();
                       });
          });
          ASSERT_EQ(all.has_value(), pieces.has_value());
          if (all) expect_same(*pieces, *all);
          compared += all.has_value();
          if (taken == 0) continue;
          ++streamed;
          ASSERT_EQ(taken, whole[k].size());
          ASSERT_EQ(all.has_value(), handed.has_value());
          if (all) expect_same(*handed, *all);
        }
      }
    }
  EXPECT_GT(compared, 300);
  EXPECT_GT(streamed, 20);
}

}  // namespace
}  // namespace opdiff
