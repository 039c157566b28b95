// The laws of laws_test.cpp over many cases, in every type.
#include "laws.h"

namespace opdiff {
namespace {

TEST_P(EveryForm, SidesAgreeInExactArithmetic) { expect_law(*GetParam(), DType::f64, false, 50); }
TEST_P(EveryForm, GradientsAgreeInExactArithmetic) { expect_law(*GetParam(), DType::f64, true, 50); }
TEST_P(EveryForm, HonestRoundingIsNoAlarmInF32) { expect_law(*GetParam(), DType::f32, false, 50); }
TEST_P(EveryForm, HonestRoundingIsNoAlarmInBFloat16) { expect_law(*GetParam(), DType::bf16, false, 50); }
TEST_P(EveryForm, HonestRoundingOfGradientsIsNoAlarm) { expect_law(*GetParam(), DType::f32, true, 50); }
TEST_P(EveryForm, HonestRoundingOfGradientsIsNoAlarmInBFloat16) { expect_law(*GetParam(), DType::bf16, true, 50); }

INSTANTIATE_TEST_SUITE_P(Forms, EveryForm, testing::ValuesIn(all_forms().begin(), all_forms().end()), test_name);

}  // namespace
}  // namespace opdiff
