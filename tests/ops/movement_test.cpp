// The operators that only move data: shapes, elements and what each opset means, against hand-computed results.
#include <algorithm>

#include "judge/judge.h"
#include "ops/one_node.h"

namespace opdiff {
namespace {

const std::string kConstantMode = "constant";

Attributes axis(std::int64_t value) { return {{"axis", value}}; }
Attributes mode(const std::string& value) { return {{"mode", value}}; }

TEST(Flatten, EveryAxis) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_TRUE(same(run("Flatten", 13, {}, {x}), counting({2, 12})));
  EXPECT_TRUE(same(run("Flatten", 13, axis(0), {x}), counting({1, 24})));
  EXPECT_TRUE(same(run("Flatten", 13, axis(3), {x}), counting({24, 1})));
  EXPECT_TRUE(same(run("Flatten", 13, axis(-1), {x}), counting({6, 4})));
  EXPECT_TRUE(same(run("Flatten", 13, axis(0), {floats({}, {7})}), floats({1, 1}, {7})));
  EXPECT_TRUE(same(run("Flatten", 13, axis(2), {floats({2, 0, 3}, {})}), floats({0, 3}, {})));
  EXPECT_NE(refusal("Flatten", 9, axis(-1), {x}).find("outside [0, 3]"), std::string::npos);
}

TEST(Reshape, ZeroAndMinusOne) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_TRUE(same(run("Reshape", 7, {}, {x, int64s({0, -1})}), counting({2, 12})));
  EXPECT_TRUE(same(run("Reshape", 13, {}, {x, int64s({4, 0, -1})}), counting({4, 3, 2})));
  EXPECT_TRUE(same(run("Reshape", 13, {}, {floats({1, 1}, {7}), int64s({})}), floats({}, {7})));
  EXPECT_TRUE(same(run("Reshape", 13, {}, {floats({}, {7}), int64s({-1})}), floats({1}, {7})));
  const Tensor none = floats({0, 3}, {});
  EXPECT_TRUE(same(run("Reshape", 13, {}, {none, int64s({0, 5})}), floats({0, 5}, {})));
  EXPECT_TRUE(same(run("Reshape", 14, {{"allowzero", std::int64_t{1}}}, {none, int64s({3, 0})}), floats({3, 0}, {})));
  EXPECT_NE(refusal("Reshape", 14, {}, {none, int64s({3, 0})}).find("elements"), std::string::npos);
}

TEST(Reshape, UnknownShapeIsUnknownNotAnError) {
  const OneNode node("Reshape", 17, {}, {counting({6}), int64s({2, 3})});
  EXPECT_FALSE(node.infer({})->front().shape.has_value());
  EXPECT_EQ(*node.infer({1})->front().shape, (Shape{2, 3}));
}

TEST(Transpose, PermutesDimensions) {
  const Tensor x = counting({2, 3});
  EXPECT_TRUE(same(run("Transpose", 7, {}, {x}), floats({3, 2}, {0, 3, 1, 4, 2, 5})));
  EXPECT_TRUE(same(run("Transpose", 13, {{"perm", Shape{0, 1}}}, {x}), x));
  EXPECT_TRUE(same(run("Transpose", 13, {{"perm", Shape{2, 0, 1}}}, {counting({1, 2, 3})}),
                   floats({3, 1, 2}, {0, 3, 1, 4, 2, 5})));
  EXPECT_TRUE(same(run("Transpose", 13, {}, {floats({}, {7})}), floats({}, {7})));
  EXPECT_TRUE(same(run("Transpose", 13, {}, {floats({0, 3}, {})}), floats({3, 0}, {})));
}

TEST(Transpose, TwiceIsIdentityOverAllPermutations) {
  const Tensor x = counting({2, 3, 1, 4});
  Shape perm{0, 1, 2, 3};
  do {
    Shape inverse(4);
    for (std::size_t k = 0; k < 4; ++k) inverse[static_cast<std::size_t>(perm[k])] = static_cast<std::int64_t>(k);
    EXPECT_TRUE(same(run("Transpose", 13, {{"perm", inverse}}, {run("Transpose", 13, {{"perm", perm}}, {x})}), x));
  } while (std::next_permutation(perm.begin(), perm.end()));
}

TEST(Concat, AlongAnyAxis) {
  const Tensor a = floats({2, 1}, {1, 2}), b = floats({2, 2}, {3, 4, 5, 6});
  EXPECT_TRUE(same(run("Concat", 7, axis(1), {a, b, a}), floats({2, 4}, {1, 3, 4, 1, 2, 5, 6, 2})));
  EXPECT_TRUE(same(run("Concat", 11, axis(-1), {a, b}), floats({2, 3}, {1, 3, 4, 2, 5, 6})));
  EXPECT_TRUE(same(run("Concat", 13, axis(0), {b, b}), floats({4, 2}, {3, 4, 5, 6, 3, 4, 5, 6})));
  EXPECT_TRUE(same(run("Concat", 13, axis(1), {floats({2, 0}, {}), b}), b));
  EXPECT_TRUE(same(run("Concat", 13, axis(0), {a}), a));
}

TEST(Pad, ExamplesOfTheSpecification) {
  const Tensor x = floats({3, 2}, {1.0, 1.2, 2.3, 3.4, 4.5, 5.7});
  const Tensor pads = int64s({0, 2, 0, 0});
  EXPECT_TRUE(same(run("Pad", 19, {}, {x, pads}), floats({3, 4}, {0, 0, 1.0, 1.2, 0, 0, 2.3, 3.4, 0, 0, 4.5, 5.7})));
  EXPECT_TRUE(same(run("Pad", 19, mode("edge"), {x, pads}),
                   floats({3, 4}, {1, 1, 1, 1.2, 2.3, 2.3, 2.3, 3.4, 4.5, 4.5, 4.5, 5.7})));
  // Its reflect example pads two columns by two, which only repeated reflection can do: refused.
  EXPECT_NE(refusal("Pad", 19, mode("reflect"), {x, pads}).find("reflect cannot extend axis 1"), std::string::npos);
  EXPECT_TRUE(same(run("Pad", 19, mode("wrap"), {x, int64s({2, 1, 1, 1})}),
                   floats({6, 4}, {3.4, 2.3, 3.4, 2.3, 5.7, 4.5, 5.7, 4.5, 1.2, 1.0, 1.2, 1.0,
                                   3.4, 2.3, 3.4, 2.3, 5.7, 4.5, 5.7, 4.5, 1.2, 1.0, 1.2, 1.0})));
}

TEST(Pad, ReflectDoesNotRepeatTheBorder) {
  EXPECT_TRUE(
      same(run("Pad", 11, mode("reflect"), {counting({4}), int64s({3, 2})}), floats({9}, {3, 2, 1, 0, 1, 2, 3, 2, 1})));
  EXPECT_TRUE(same(run("Pad", 7, {{"mode", std::string("reflect")}, {"pads", Shape{1, 0}}}, {counting({3})}),
                   floats({4}, {1, 0, 1, 2})));
}

TEST(Pad, ConstantsByOpset) {
  const Tensor x = floats({1}, {5});
  EXPECT_TRUE(same(run("Pad", 7, {{"pads", Shape{1, 1}}, {"value", 2.5f}}, {x}), floats({3}, {2.5, 5, 2.5})));
  EXPECT_TRUE(same(run("Pad", 11, {}, {x, int64s({1, 0}), floats({}, {-0.0})}), floats({2}, {-0.0, 5})));
  EXPECT_TRUE(same(run("Pad", 13, mode(kConstantMode), {integers(DType::i64, {5}), int64s({0, 1}), int64s({-7})}),
                   int64s({5, -7})));
  EXPECT_TRUE(same(run("Pad", 13, {}, {tensor(DType::boolean, {1}, {1}), int64s({1, 0})}),
                   tensor(DType::boolean, {2}, {0, 1})));
  // A value that f32 cannot hold, in f64.
  EXPECT_EQ(run("Pad", 13, {}, {tensor(DType::f64, {1}, {5}), int64s({1, 0}), tensor(DType::f64, {}, {0.1})}).at(0),
            0.1);
}

TEST(Pad, AxesAndCrops) {
  const Tensor x = counting({2, 3});
  EXPECT_TRUE(same(run("Pad", 18, {}, {x, int64s({1, 0}), std::nullopt, int64s({-1})}),
                   floats({2, 4}, {0, 0, 1, 2, 0, 3, 4, 5})));
  EXPECT_TRUE(same(run("Pad", 18, {}, {x, int64s({-1, 0, 0, 1}), std::nullopt, int64s({1, 0})}),
                   floats({3, 2}, {1, 2, 4, 5, 0, 0})));
  EXPECT_TRUE(same(run("Pad", 13, {}, {x, int64s({0, -1, 0, -1})}), floats({2, 1}, {1, 4})));
  EXPECT_TRUE(same(run("Pad", 13, {}, {counting({3}), int64s({-3, 2})}), floats({2}, {0, 0})));
  EXPECT_TRUE(same(run("Pad", 13, mode("edge"), {counting({3}), int64s({-1, 2})}), floats({4}, {1, 2, 2, 2})));
  EXPECT_TRUE(same(run("Pad", 13, {}, {floats({0}, {}), int64s({1, 1}), floats({}, {9})}), floats({2}, {9, 9})));
  EXPECT_TRUE(same(run("Pad", 13, {}, {floats({}, {3}), int64s({})}), floats({}, {3})));
}

TEST(Slice, AttributesUntilNineInputsFromTen) {
  const Tensor x = floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(same(run("Slice", 9, {{"axes", Shape{0, 1}}, {"starts", Shape{1, 0}}, {"ends", Shape{2, 3}}}, {x}),
                   floats({1, 3}, {5, 6, 7})));
  EXPECT_TRUE(
      same(run("Slice", 7, {{"starts", Shape{0, 1}}, {"ends", Shape{-1, 1000}}}, {x}), floats({1, 3}, {2, 3, 4})));
  EXPECT_TRUE(same(run("Slice", 10, {}, {x, int64s({1, 0}), int64s({2, 3}), int64s({0, 1}), int64s({1, 2})}),
                   floats({1, 2}, {5, 7})));
  EXPECT_TRUE(same(run("Slice", 13, {}, {x, int64s({0, 1}), int64s({-1, 1000})}), floats({1, 3}, {2, 3, 4})));
  EXPECT_TRUE(same(run("Slice", 13, {},
                       {x, integers(DType::i32, {-1}), integers(DType::i32, {-100}), integers(DType::i32, {-1}),
                        integers(DType::i32, {-2})}),
                   floats({2, 2}, {4, 2, 8, 6})));
}

// Every start, end and step on small axes, against the numpy rule written out.
TEST(Slice, EveryRangeOfSmallAxes) {
  for (std::int64_t n = 0; n <= 4; ++n)
    for (std::int64_t start = -n - 2; start <= n + 2; ++start)
      for (std::int64_t end = -n - 2; end <= n + 2; ++end)
        for (const std::int64_t step : {-5, -3, -2, -1, 1, 2, 3, 5}) {
          std::int64_t a = start < 0 ? start + n : start, b = end < 0 ? end + n : end;
          a = step > 0 ? std::clamp<std::int64_t>(a, 0, n) : std::min(std::max<std::int64_t>(a, 0), n - 1);
          b = step > 0 ? std::clamp<std::int64_t>(b, 0, n) : std::min(std::max<std::int64_t>(b, -1), n - 1);
          std::vector<double> right;
          for (std::int64_t i = a; step > 0 ? i < b : i > b; i += step) right.push_back(static_cast<double>(i));
          ASSERT_TRUE(
              same(run("Slice", 13, {}, {counting({n}), int64s({start}), int64s({end}), int64s({0}), int64s({step})}),
                   floats({std::ssize(right)}, right)))
              << n << ": " << start << " " << end << " " << step;
        }
}

TEST(Slice, FarEndsDoNotOverflow) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max(), kLeast = std::numeric_limits<std::int64_t>::min();
  const Tensor x = counting({3});
  const auto slice = [&](std::int64_t start, std::int64_t end, std::int64_t step) {
    return run("Slice", 13, {}, {x, int64s({start}), int64s({end}), int64s({0}), int64s({step})});
  };
  EXPECT_TRUE(same(slice(0, kMost, 1), x));
  EXPECT_TRUE(same(slice(kMost, kLeast, -1), floats({3}, {2, 1, 0})));
  EXPECT_TRUE(same(slice(kLeast, kMost, kMost), floats({1}, {0})));
  EXPECT_TRUE(same(slice(kMost, kLeast, kLeast), floats({1}, {2})));
}

TEST(Slice, UnknownValuesLeaveTheShapeUnknown) {
  const OneNode node("Slice", 17, {}, {counting({4}), int64s({1}), int64s({3})});
  EXPECT_FALSE(node.infer({1})->front().shape.has_value());
  EXPECT_EQ(*node.infer({1, 2})->front().shape, (Shape{2}));
}

TEST(Squeeze, ByOpset) {
  const Tensor x = counting({1, 3, 1, 2, 1});
  EXPECT_TRUE(same(run("Squeeze", 7, {}, {x}), counting({3, 2})));
  EXPECT_TRUE(same(run("Squeeze", 7, {{"axes", Shape{2, 0}}}, {x}), counting({3, 2, 1})));
  EXPECT_TRUE(same(run("Squeeze", 11, {{"axes", Shape{-1}}}, {x}), counting({1, 3, 1, 2})));
  EXPECT_TRUE(same(run("Squeeze", 13, {}, {x, int64s({0, -3})}), counting({3, 2, 1})));
  EXPECT_TRUE(same(run("Squeeze", 13, {}, {x, int64s({})}), x));  // an empty list takes nothing away
  EXPECT_TRUE(same(run("Squeeze", 13, {}, {floats({1}, {7})}), floats({}, {7})));
}

TEST(Unsqueeze, ByOpset) {
  const Tensor x = counting({3, 2});
  EXPECT_TRUE(same(run("Unsqueeze", 7, {{"axes", Shape{0, 2}}}, {x}), counting({1, 3, 1, 2})));
  EXPECT_TRUE(same(run("Unsqueeze", 11, {{"axes", Shape{-1}}}, {x}), counting({3, 2, 1})));
  EXPECT_TRUE(same(run("Unsqueeze", 13, {}, {x, int64s({3, 0})}), counting({1, 3, 2, 1})));
  EXPECT_TRUE(same(run("Unsqueeze", 13, {}, {floats({}, {7}), int64s({0, 1})}), floats({1, 1}, {7})));
}

TEST(Identity, KeepsEveryBit) {
  Tensor x = Tensor::zeros(DType::f32, {3});
  const std::uint32_t bits[] = {0x7FC12345, 0x80000000, 0x00000001};  // a NaN with a payload, -0, the least subnormal
  std::memcpy(x.mutable_bytes().data(), bits, sizeof bits);
  EXPECT_TRUE(run("Identity", 7, {}, {x}).bit_equal(x));
}

TEST(Dropout, IdentityWithAMaskOfOnes) {
  const Tensor x = floats({2}, {1, -2}), ratio = floats({}, {0.3});
  const OneNode seven("Dropout", 7, {{"ratio", 0.3f}}, {x}, 2), ten("Dropout", 10, {}, {x}, 2);
  EXPECT_TRUE(same((*seven.run())[0], x));
  EXPECT_TRUE(same((*seven.run())[1], floats({2}, {1, 1})));
  EXPECT_TRUE(same((*ten.run())[1], tensor(DType::boolean, {2}, {1, 1})));
  EXPECT_TRUE(same(run("Dropout", 13, {}, {x, ratio, Tensor::zeros(DType::boolean, {})}), x));
}

TEST(Dropout, MaskOfZerosIsAConventionBeforeOpsetTwelveOnly) {
  const Tensor x = floats({2}, {1, -2}), zeros = Tensor::zeros(DType::boolean, {2});
  const Tensor* got[] = {&x, &zeros};
  const OneNode ten("Dropout", 10, {}, {x}, 2), twelve("Dropout", 12, {}, {x}, 2);
  EXPECT_EQ(judge_node(ten.node, 10, ten.pointers, got)[1].rung, Rung::convention);
  EXPECT_EQ(judge_node(twelve.node, 12, twelve.pointers, got)[1].rung, Rung::defect);
}

TEST(Movement, OneChangedElementIsADefect) {
  const OneNode node("Transpose", 13, {}, {counting({2, 3})});
  Tensor wrong = node.run()->front().clone();
  wrong.mutable_as<float>()[4] = -0.0f;
  const Tensor* got[] = {&wrong};
  EXPECT_EQ(judge_node(node.node, 13, node.pointers, got)[0].rung, Rung::defect);
}

TEST(Movement, FlushedSubnormalsAreNamed) {
  const OneNode node("Identity", 13, {}, {floats({3}, {1e-40, -0.0, 1})});
  const Tensor flushed = floats({3}, {0, -0.0, 1}), other = floats({3}, {0, 0, 1});
  const Tensor* got[] = {&flushed};
  const Verdict v = judge_node(node.node, 13, node.pointers, got)[0];
  EXPECT_EQ(v.rung, Rung::flush_to_zero);
  EXPECT_EQ(v.explanation, "subnormals treated as zero");
  got[0] = &other;  // a zero of the other sign was not moved
  EXPECT_EQ(judge_node(node.node, 13, node.pointers, got)[0].rung, Rung::defect);
}

}  // namespace
}  // namespace opdiff
