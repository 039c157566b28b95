// Sums so long that their worst case is infinite.
#include <gtest/gtest.h>

#include "judge/emulate.h"

namespace opdiff {
namespace {

TEST(LongSums, AreJudgedByTheirDeviation) {
  // 2^24 terms of f32: the worst case is infinite.
  const std::int64_t n = (1 << 24) + 4096;
  const Case c = make_case("ReduceMean", {random_tensor(DType::f32, {n}, 9, 1, 2)}, {{"keepdims", std::int64_t{0}}});
  const Verdict honest = c.judge(c.worked({SumOrder::Kind::pairwise, 1, false, 0}, inner_f32(DType::f32)));
  EXPECT_LE(honest.rung, Rung::rounding) << on(honest, Rung::rounding).message();
  EXPECT_FALSE(honest.unproven);
  const EnclosedTensor e = c.enclosed(inner_f32(DType::f32));
  EXPECT_EQ(e.radius[0], HUGE_VAL);
  const Verdict off = c.judge(from(DType::f32, {}, {e.centre[0] + 40 * e.deviation[0]}));
  EXPECT_GE(off.rung, Rung::unlikely) << on(off, Rung::unlikely).message();
}

}  // namespace
}  // namespace opdiff
