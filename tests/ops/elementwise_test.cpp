// Values, corner cases and opset differences of the elementwise operators and LogSoftmax, against hand-computed
// numbers.
#include "judge/judge.h"
#include "ops/one_node.h"
#include "ops/training_node.h"

namespace opdiff {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// The verdict on a first output that a backend might return.
Verdict judged(const OneNode& node, const Tensor& got) {
  const Tensor* outputs[] = {&got};
  return judge_node(node.node, node.opset, node.pointers, outputs)[0];
}

TEST(Relu, ZeroBelowZeroAndNanStays) {
  EXPECT_TRUE(same(run("Relu", 7, {}, {floats({4}, {-2, 3, kNan, kInf})}), floats({4}, {0, 3, kNan, kInf})));
  EXPECT_TRUE(same(run("Relu", 14, {}, {integers(DType::i8, {-128, 127, 0})}), integers(DType::i8, {0, 127, 0})));
}

TEST(Relu, NanAsZeroIsAConvention) {
  const OneNode node("Relu", 17, {}, {floats({3}, {kNan, -1, 2})});
  EXPECT_EQ(judged(node, floats({3}, {kNan, 0, 2})).rung, Rung::exact);
  const Verdict v = judged(node, floats({3}, {0, 0, 2}));
  EXPECT_EQ(v.rung, Rung::convention);
  EXPECT_EQ(v.explanation, "NaN becomes 0");
  EXPECT_EQ(judged(node, floats({3}, {1, 0, 2})).rung, Rung::defect);
}

TEST(LeakyRelu, SlopeBelowZero) {
  EXPECT_TRUE(same(run("LeakyRelu", 7, {}, {floats({3}, {-1, 0, 5})}), floats({3}, {-0.01f, 0, 5})));
  // A slope above 1: not max(x, alpha x).
  EXPECT_TRUE(same(run("LeakyRelu", 16, {{"alpha", 2.0f}}, {floats({3}, {-3, 4, kNan})}), floats({3}, {-6, 4, kNan})));
  EXPECT_TRUE(same(run("LeakyRelu", 16, {{"alpha", -1.0f}}, {floats({2}, {-kInf, -2})}), floats({2}, {kInf, 2})));
}

TEST(Sigmoid, KeepsBothTails) {
  const Tensor x = floats({7}, {0, 1, -1, -17.4, -100, 1000, -1000});
  const Tensor y = run("Sigmoid", 13, {}, {x});
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(0)), 0.5f);
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(1)), 0.7310585786f);
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(2)), 0.2689414214f);
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(3)), static_cast<float>(std::exp(-17.399999618530273)));
  EXPECT_NEAR(y.at(4), 3.783505853677006e-44, 1.5e-45);  // subnormal, not 0
  EXPECT_EQ(y.at(5), 1);
  EXPECT_EQ(y.at(6), 0);
  EXPECT_TRUE(same(run("Sigmoid", 7, {}, {floats({3}, {-kInf, kInf, kNan})}), floats({3}, {0, 1, kNan})));
}

TEST(Sigmoid, FormsThatOverflowOnTheWayAreHonest) {
  const OneNode node("Sigmoid", 17, {}, {floats({2}, {-95, -1000})});
  EXPECT_LE(judged(node, floats({2}, {0, 0})).rung, Rung::rounding);  // exp(95) is infinite in f32
  EXPECT_EQ(judged(node, floats({2}, {kInf, 0})).rung, Rung::defect);
  EXPECT_EQ(judged(node, floats({2}, {0, 1})).rung, Rung::defect);
}

TEST(Sigmoid, CoarseTailIsAnApproximationWithItsMeasuredFloor) {
  const OneNode node("Sigmoid", 17, {}, {floats({1}, {-17.4})});
  const Verdict v = judged(node, floats({1}, {1.49e-7}));
  EXPECT_EQ(v.rung, Rung::approximation);
  EXPECT_NE(v.explanation.find("measure_floors"), std::string::npos) << v.explanation;
  EXPECT_EQ(judged(node, floats({1}, {4e-7})).rung, Rung::defect);
}

TEST(Tanh, SmallArgumentsKeepTheirDigits) {
  EXPECT_TRUE(
      same(run("Tanh", 13, {}, {floats({5}, {0, 1e-20, kInf, -kInf, kNan})}), floats({5}, {0, 1e-20, 1, -1, kNan})));
  EXPECT_EQ(judged(OneNode("Tanh", 17, {}, {floats({1}, {1e-6})}), floats({1}, {9.5367e-7})).rung, Rung::defect);
}

TEST(Elu, ExponentialBelowZero) {
  const Tensor y = run("Elu", 7, {{"alpha", 2.0f}}, {floats({5}, {-1e-10, -1, 3, -kInf, kNan})});
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(0)), -2e-10f);  // no cancellation
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(1)), static_cast<float>(2 * (std::exp(-1.0) - 1)));
  EXPECT_EQ(y.at(2), 3);
  EXPECT_EQ(y.at(3), -2);
  EXPECT_TRUE(std::isnan(y.at(4)));
}

TEST(Elu, FloorGrowsWithAlpha) {
  // 0 for -1e-8 alpha: what 1 - exp rounds to.
  const OneNode node("Elu", 17, {{"alpha", 8.0f}}, {floats({1}, {-1e-8})});
  EXPECT_EQ(judged(node, floats({1}, {0})).rung, Rung::approximation);
  EXPECT_EQ(judged(OneNode("Elu", 17, {{"alpha", 8.0f}}, {floats({1}, {-1e-6})}), floats({1}, {0})).rung, Rung::defect);
}

TEST(Clip, BoundsAreAttributesThenInputs) {
  const Tensor x = floats({4}, {-5, 0, 5, kNan});
  EXPECT_TRUE(same(run("Clip", 7, {{"min", -1.0f}, {"max", 2.0f}}, {x}), floats({4}, {-1, 0, 2, kNan})));
  EXPECT_TRUE(same(run("Clip", 11, {}, {x, floats({}, {-1}), floats({}, {2})}), floats({4}, {-1, 0, 2, kNan})));
  EXPECT_TRUE(same(run("Clip", 13, {}, {x, std::nullopt, floats({}, {2})}), floats({4}, {-5, 0, 2, kNan})));
  EXPECT_TRUE(same(run("Clip", 12, {}, {integers(DType::i32, {-9, 9}), tensor(DType::i32, {}, {-3})}),
                   integers(DType::i32, {-3, 9})));
  EXPECT_TRUE(same(run("Clip", 13, {}, {integers(DType::u64, {-1, 3}), tensor(DType::u64, {}, {5})}),
                   integers(DType::u64, {-1, 5})));  // -1: 2^64 - 1
  EXPECT_NE(refusal("Clip", 11, {{"min", 0.0f}}, {x}).find("unknown attribute 'min'"), std::string::npos);
}

TEST(Clip, MaxWinsOverMin) {
  EXPECT_TRUE(same(run("Clip", 13, {}, {floats({3}, {-5, 0, 5}), floats({}, {3}), floats({}, {-3})}),
                   floats({3}, {-3, -3, -3})));
}

TEST(Clip, AbsentBoundsAreTheLargestNumbers) {
  const OneNode node("Clip", 13, {}, {floats({3}, {kInf, -kInf, 1})});
  const Tensor clipped = floats({3}, {kLargest, -kLargest, 1});
  EXPECT_TRUE(same(node.run()->front(), clipped));
  EXPECT_EQ(judged(node, clipped).rung, Rung::exact);
  EXPECT_EQ(judged(node, floats({3}, {kInf, -kInf, 1})).explanation, "an absent bound leaves infinities");
  // Of f16 from opset 11 on, of f32 before.
  const Tensor x = tensor(DType::f16, {1}, {kInf});
  EXPECT_EQ(run("Clip", 11, {}, {x}).at(0), 65504);
  EXPECT_EQ(run("Clip", 7, {}, {x}).at(0), kInf);
}

TEST(Clip, NanAsABoundIsAConvention) {
  const OneNode node("Clip", 13, {}, {floats({2}, {kNan, 0}), floats({}, {-1}), floats({}, {1})});
  EXPECT_EQ(judged(node, floats({2}, {-1, 0})).rung, Rung::convention);
  EXPECT_EQ(judged(node, floats({2}, {1, 0})).rung, Rung::convention);
  EXPECT_EQ(judged(node, floats({2}, {0, 0})).rung, Rung::defect);
}

TEST(Arithmetic, BroadcastsAndRoundsOnce) {
  const Tensor column = floats({2, 1}, {1, 2}), row = floats({3}, {10, 20, 30});
  EXPECT_TRUE(same(run("Add", 7, {}, {column, row}), floats({2, 3}, {11, 21, 31, 12, 22, 32})));
  EXPECT_TRUE(same(run("Sub", 7, {}, {row, column}), floats({2, 3}, {9, 19, 29, 8, 18, 28})));
  EXPECT_TRUE(same(run("Mul", 14, {}, {column, row}), floats({2, 3}, {10, 20, 30, 20, 40, 60})));
  EXPECT_TRUE(same(run("Div", 14, {}, {row, floats({}, {4})}), floats({3}, {2.5, 5, 7.5})));
  EXPECT_TRUE(same(run("Add", 14, {}, {floats({0, 3}, {}), row}), floats({0, 3}, {})));
  // 1 + 2^-24 is a tie that goes to even; with 2^-40 more it goes up: one rounding of the exact sum.
  EXPECT_EQ(run("Add", 14, {}, {floats({}, {1}), floats({}, {0x1p-24})}).at(0), 1);
  EXPECT_EQ(run("Add", 14, {}, {floats({}, {1}), floats({}, {0x1p-24 + 0x1p-40})}).at(0), 1 + 0x1p-23);
  // In f64 the exact sum needs more than double.
  EXPECT_EQ(run("Add", 14, {}, {tensor(DType::f64, {}, {1}), tensor(DType::f64, {}, {0x1p-53 + 0x1p-80})}).at(0),
            1 + 0x1p-52);
}

TEST(Arithmetic, NonFiniteNumbersFollowIeee) {
  const Tensor a = floats({4}, {kInf, kInf, 0, 1}), b = floats({4}, {-kInf, 0, 0, -0.0});
  EXPECT_TRUE(same(run("Add", 14, {}, {a, b}), floats({4}, {kNan, kInf, 0, 1})));
  EXPECT_TRUE(std::isnan(run("Mul", 14, {}, {a, b}).at(1)));
  EXPECT_TRUE(std::isnan(run("Div", 14, {}, {a, b}).at(2)));
  EXPECT_EQ(run("Div", 14, {}, {a, b}).at(3), -kInf);
  EXPECT_EQ(run("Mul", 14, {}, {floats({}, {3e38}), floats({}, {-10})}).at(0), -kInf);
}

TEST(Arithmetic, IntegersWrap) {
  const auto least = std::numeric_limits<std::int64_t>::min();
  EXPECT_TRUE(
      same(run("Add", 14, {}, {integers(DType::i8, {127}), integers(DType::i8, {1})}), integers(DType::i8, {-128})));
  EXPECT_TRUE(
      same(run("Add", 7, {}, {int64s({least}), int64s({-1})}), int64s({std::numeric_limits<std::int64_t>::max()})));
  EXPECT_TRUE(same(run("Sub", 7, {}, {integers(DType::u32, {0}), integers(DType::u32, {1})}),
                   integers(DType::u32, {0xFFFFFFFF})));
  EXPECT_TRUE(same(run("Mul", 14, {}, {integers(DType::i16, {300}), integers(DType::i16, {300})}),
                   integers(DType::i16, {90000 - 65536})));
  EXPECT_TRUE(same(run("Mul", 7, {}, {int64s({std::int64_t{1} << 62}), int64s({4})}), int64s({0})));
}

TEST(Div, IntegersTruncateAndOpenCasesAreNotJudged) {
  EXPECT_TRUE(same(run("Div", 7, {}, {int64s({7, -7, 7, -7}), int64s({2, 2, -2, -2})}), int64s({3, -3, -3, 3})));
  EXPECT_TRUE(same(run("Div", 7, {}, {integers(DType::u64, {-1}), integers(DType::u64, {2})}),
                   integers(DType::u64, {std::numeric_limits<std::int64_t>::max()})));
  const OneNode node("Div", 14, {}, {integers(DType::i8, {5, -128, -128, 9}), integers(DType::i8, {0, -1, 1, 2})});
  const Verdict v = judged(node, integers(DType::i8, {77, 77, -128, 4}));
  EXPECT_EQ(v.rung, Rung::exact);
  EXPECT_EQ(v.unspecified_elements, 2);
  EXPECT_EQ(judged(node, integers(DType::i8, {0, 0, -128, 5})).rung, Rung::defect);
  const OneNode longest("Div", 7, {}, {int64s({std::numeric_limits<std::int64_t>::min()}), int64s({-1})});
  EXPECT_TRUE(longest.run().has_value());
  EXPECT_EQ(judged(longest, int64s({1})).unspecified_elements, 1);
  // -1 is 255 in u8: nothing is open.
  EXPECT_TRUE(same(run("Div", 14, {}, {integers(DType::u8, {255, 10}), integers(DType::u8, {255, 255})}),
                   integers(DType::u8, {1, 0})));
}

TEST(Greater, ExactOverBroadcastShapes) {
  const Tensor yes = tensor(DType::boolean, {2, 2}, {0, 1, 0, 0});
  EXPECT_TRUE(same(run("Greater", 7, {}, {floats({2, 1}, {2, 0}), floats({2}, {2, 1})}), yes));
  EXPECT_TRUE(same(run("Greater", 13, {}, {floats({4}, {kNan, 1, 0, kInf}), floats({4}, {0, kNan, -0.0, 3e38})}),
                   tensor(DType::boolean, {4}, {0, 0, 0, 1})));
  // -1 is 2^64 - 1.
  EXPECT_TRUE(same(run("Greater", 9, {}, {integers(DType::u64, {-1, 2}), integers(DType::u64, {1, -1})}),
                   tensor(DType::boolean, {2}, {1, 0})));
  EXPECT_TRUE(
      same(run("Greater", 9, {}, {int64s({-1, (std::int64_t{1} << 60) + 1}), int64s({1, std::int64_t{1} << 60})}),
           tensor(DType::boolean, {2}, {0, 1})));
  const OneNode node("Greater", 13, {}, {floats({2}, {1e-40, 1}), floats({2}, {0, 2})});
  EXPECT_EQ(judged(node, tensor(DType::boolean, {2}, {1, 0})).rung, Rung::exact);
  EXPECT_EQ(judged(node, tensor(DType::boolean, {2}, {0, 0})).rung, Rung::convention);
  EXPECT_EQ(judged(node, tensor(DType::boolean, {2}, {1, 1})).rung, Rung::defect);
}

TEST(Where, TakesElementsBitForBit) {
  const Tensor condition = tensor(DType::boolean, {2, 1}, {1, 0});
  EXPECT_TRUE(same(run("Where", 9, {}, {condition, floats({2}, {-0.0, kNan}), floats({}, {7})}),
                   floats({2, 2}, {-0.0, kNan, 7, 7})));
  EXPECT_TRUE(same(run("Where", 9, {}, {condition, integers(DType::i8, {1, 2}), integers(DType::i8, {-3, -4})}),
                   tensor(DType::i8, {2, 2}, {1, 2, -3, -4})));
  EXPECT_TRUE(same(run("Where", 9, {}, {condition, tensor(DType::boolean, {}, {1}), tensor(DType::boolean, {}, {0})}),
                   condition));
  EXPECT_TRUE(
      same(run("Where", 9, {}, {tensor(DType::boolean, {0}, {}), floats({}, {1}), floats({}, {2})}), floats({0}, {})));
  const OneNode node("Where", 9, {}, {condition, floats({2}, {0, 1}), floats({}, {7})});
  EXPECT_EQ(judged(node, floats({2, 2}, {-0.0, 1, 7, 7})).rung, Rung::defect);
}

TEST(Where, GradientsGoToTheBranchThatWasTaken) {
  OneNode node(
      "Where", 17, {},
      {tensor(DType::boolean, {2, 1}, {1, 0}), floats({2}, {1, 2}), floats({}, {3}), floats({2, 2}, {1, 2, 4, 8})}, 3);
  node.node.domain = kGradientDomain;
  node.node.outputs[0].clear();
  const auto gradients = *node.run();
  EXPECT_TRUE(same(gradients[1], floats({2}, {1, 2})));
  EXPECT_TRUE(same(gradients[2], floats({}, {12})));
}

TEST(Pow, PowersAndCorners) {
  const Tensor x = floats({8}, {2, 2, -2, -2, 0, 0, kNan, 1}), y = floats({8}, {3, -1, 3, 0.5, 2, -1, 0, kNan});
  EXPECT_TRUE(same(run("Pow", 13, {}, {x, y}), floats({8}, {8, 0.5, -8, kNan, 0, kInf, 1, 1})));
  EXPECT_TRUE(same(run("Pow", 7, {}, {floats({2, 1}, {2, 3}), floats({2}, {1, 2})}), floats({2, 2}, {2, 4, 3, 9})));
  const double right = std::pow(1.7f, static_cast<double>(2.3f));
  EXPECT_EQ(run("Pow", 13, {}, {floats({}, {1.7}), floats({}, {2.3})}).at(0), static_cast<float>(right));
  const OneNode node("Pow", 13, {}, {floats({1}, {1.7}), floats({1}, {2.3})});
  EXPECT_EQ(judged(node, floats({1}, {right + 0x1p-21})).rung, Rung::rounding);       // 2 ulp
  EXPECT_EQ(judged(node, floats({1}, {right + 0x1p-17})).rung, Rung::approximation);  // 32 ulp
  EXPECT_EQ(judged(node, floats({1}, {right + 0x1p-8})).rung, Rung::defect);
}

TEST(Pow, GradientsAtCornersAndKinks) {
  const Tensor x = floats({7}, {3, 2, 0, 0, 0, -2, 1}), y = floats({7}, {2, 0, 0, 1, 2, 3, -4});
  OneNode node("Pow", 13, {}, {x, y, floats({7}, {1, 5, 1, 1, 1, 1, 2})}, 2);
  node.node.domain = kGradientDomain;
  const auto gradients = *node.run();
  const double by_exponent = 9 * std::log(3.0), of_one = 5 * std::log(2.0);
  EXPECT_TRUE(same(gradients[0], floats({7}, {6, 0, 0, 1, 0, 12, -8})));
  EXPECT_TRUE(same(gradients[1], floats({7}, {by_exponent, of_one, 0, 0, 0, kNan, 0})));
  // Below 0 the exponent's slope is NaN, or 0 by a convention, and no other number.
  const auto got = [&](double slope) { return floats({7}, {by_exponent, of_one, 0, 0, 0, slope, 0}); };
  EXPECT_EQ(judged(node, 1, got(0)).rung, Rung::convention);
  EXPECT_EQ(judged(node, 1, got(1)).rung, Rung::defect);
}

TEST(Pow, AnExponentRoundedToAWholeNumberHasAPowerOfANegative) {
  OneNode node("Pow", 13, {}, {floats({1}, {-0x1p-14}), floats({1}, {0x1p-26}), floats({1}, {0x1p12})}, 2);
  node.node.domain = kGradientDomain;
  EXPECT_TRUE(std::isnan((*node.run())[0].at(0)));  // X^(2^-26 - 1) is no real number, X^-1 is one
  EXPECT_EQ(judged(node, floats({1}, {kNan})).rung, Rung::exact);
  EXPECT_EQ(judged(node, floats({1}, {-1})).rung, Rung::rounding);
  EXPECT_EQ(judged(node, floats({1}, {1})).rung, Rung::defect);
  EXPECT_EQ(judged(node, floats({1}, {-1.1})).rung, Rung::defect);
  EXPECT_EQ(judged(node, floats({1}, {kInf})).rung, Rung::defect);
}

TEST(Pow, ARoundedExponentTurnsTheSignOfAPowerOfMinusOne) {
  const double y = 0x1p25;  // y - 1 has no f32
  OneNode node("Pow", 13, {}, {floats({1}, {-1}), floats({1}, {y}), floats({1}, {1})}, 2);
  node.node.domain = kGradientDomain;
  EXPECT_EQ((*node.run())[0].at(0), -y);
  EXPECT_EQ(judged(node, floats({1}, {-y})).rung, Rung::exact);
  EXPECT_EQ(judged(node, floats({1}, {y})).rung, Rung::rounding);
  EXPECT_EQ(judged(node, floats({1}, {3 * y})).rung, Rung::defect);
}

TEST(LogSoftmax, RowsByOpset) {
  const Tensor x = floats({1, 2, 2}, {0, 0, 0, 0});
  EXPECT_FLOAT_EQ(static_cast<float>(run("LogSoftmax", 13, {}, {x}).at(0)), static_cast<float>(-std::log(2.0)));
  EXPECT_FLOAT_EQ(static_cast<float>(run("LogSoftmax", 11, {}, {x}).at(0)), static_cast<float>(-std::log(4.0)));
  EXPECT_FLOAT_EQ(static_cast<float>(run("LogSoftmax", 11, {{"axis", std::int64_t{-1}}}, {x}).at(0)),
                  static_cast<float>(-std::log(2.0)));
}

TEST(LogSoftmax, LargeAndInfiniteLogits) {
  EXPECT_TRUE(same(run("LogSoftmax", 13, {}, {floats({3}, {1000, 0, -1000})}), floats({3}, {0, -1000, -2000})));
  const double half = -static_cast<double>(static_cast<float>(std::log(2.0)));
  EXPECT_TRUE(same(run("LogSoftmax", 13, {}, {floats({3}, {5, 5, -kInf})}), floats({3}, {half, half, -kInf})));
  EXPECT_TRUE(std::isnan(run("LogSoftmax", 13, {}, {floats({2}, {kInf, 0})}).at(1)));
  EXPECT_TRUE(same(run("LogSoftmax", 13, {}, {floats({2, 0}, {})}), floats({2, 0}, {})));
  EXPECT_TRUE(same(run("LogSoftmax", 13, {}, {floats({2, 1}, {7, -7})}), floats({2, 1}, {0, 0})));
}

TEST(LogSoftmax, LogarithmOfSoftmaxIsNoRung) {
  // log(exp(-200) / 1) in f32 is minus infinity.
  const OneNode node("LogSoftmax", 13, {}, {floats({2}, {0, -200})});
  EXPECT_EQ(judged(node, floats({2}, {0, -200})).rung, Rung::exact);
  EXPECT_EQ(judged(node, floats({2}, {0, -kInf})).rung, Rung::defect);
}

}  // namespace
}  // namespace opdiff
