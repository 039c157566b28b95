#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "judge/judge.h"
#include "one_call.h"

namespace opdiff::testing_ops {
namespace {

TEST(ReduceMean, ByHand) {
  // test_reduce_mean_*: the data of ONNX's own examples.
  const Tensor x = tensor({3, 2, 2}, {5, 1, 20, 2, 30, 1, 40, 2, 55, 1, 60, 2});
  EXPECT_TRUE(evaluate("ReduceMean", {x, integers({1})}, {{"keepdims", std::int64_t{0}}}, 18)[0].bit_equal(
      tensor({3, 2}, {12.5, 1.5, 35, 1.5, 57.5, 1.5})));
  EXPECT_TRUE(evaluate("ReduceMean", {x, integers({-2})}, {}, 18)[0].bit_equal(
      tensor({3, 1, 2}, {12.5, 1.5, 35, 1.5, 57.5, 1.5})));
  EXPECT_TRUE(evaluate("ReduceMean", {x}, {{"axes", Shape{1}}}, 17)[0].bit_equal(
      tensor({3, 1, 2}, {12.5, 1.5, 35, 1.5, 57.5, 1.5})));
  EXPECT_TRUE(evaluate("ReduceMean", {x}, {}, 18)[0].bit_equal(tensor({1, 1, 1}, {18.25})));
  EXPECT_TRUE(evaluate("ReduceMean", {x}, {{"keepdims", std::int64_t{0}}}, 13)[0].bit_equal(tensor({}, {18.25})));
  EXPECT_TRUE(evaluate("ReduceMean", {tensor({}, {3})}, {}, 18)[0].bit_equal(tensor({}, {3})));
}

TEST(ReduceMean, NoAxes) {
  const Tensor x = tensor({2, 2}, {1, 2, 3, 6});
  const Attributes noop{{"noop_with_empty_axes", std::int64_t{1}}};
  EXPECT_TRUE(evaluate("ReduceMean", {x}, noop, 18)[0].bit_equal(x));
  EXPECT_TRUE(evaluate("ReduceMean", {x, integers({})}, noop, 18)[0].bit_equal(x));
  EXPECT_TRUE(evaluate("ReduceMean", {x, std::nullopt}, {}, 18)[0].bit_equal(tensor({1, 1}, {3})));
  EXPECT_TRUE(evaluate("ReduceMean", {x, integers({})}, {}, 18)[0].bit_equal(tensor({1, 1}, {3})));
  // Axes that are given are reduced, whatever the attribute says.
  EXPECT_TRUE(evaluate("ReduceMean", {x, integers({0})}, noop, 18)[0].bit_equal(tensor({1, 2}, {2, 4})));
}

TEST(ReduceMean, AnyAxes) {
  for (std::uint64_t index = 0; index < 200; ++index) {
    Rng rng(10, "ReduceMean", index);
    Shape shape;
    for (std::int64_t d = rng.integer(1, 5); d > 0; --d) shape.push_back(rng.integer(1, 4));
    const auto rank = static_cast<std::int64_t>(shape.size());
    std::set<std::int64_t> reduced;
    std::vector<std::int64_t> axes;
    for (std::int64_t d = rank - 1; d >= 0; --d)
      if (rng.chance(0.5)) {
        reduced.insert(d);
        axes.push_back(rng.chance(0.5) ? d : d - rank);
      }
    if (axes.empty())
      for (std::int64_t d = 0; d < rank; ++d) reduced.insert(d);
    const bool keep = rng.chance(0.5), as_input = rng.chance(0.5);
    Shape expected, kept;
    for (std::int64_t d = 0; d < rank; ++d) {
      if (!reduced.contains(d)) expected.push_back(shape[static_cast<std::size_t>(d)]);
      if (reduced.contains(d) && keep) expected.push_back(1);
      kept.push_back(reduced.contains(d) ? 1 : shape[static_cast<std::size_t>(d)]);
    }
    const Tensor x = whole_numbers(rng, shape);
    std::vector<double> sums(static_cast<std::size_t>(element_count(kept)));
    for (std::int64_t i = 0; i < x.size(); ++i) {
      std::int64_t rest = i, output = 0, scale = 1;
      for (std::size_t d = shape.size(); d-- > 0;) {
        output += (kept[d] == 1 ? 0 : rest % shape[d]) * scale;
        scale *= kept[d];
        rest /= shape[d];
      }
      sums[static_cast<std::size_t>(output)] += x.at(i);
    }
    const double count = static_cast<double>(x.size()) / static_cast<double>(sums.size());
    Attributes attributes{{"keepdims", std::int64_t{keep}}};
    Inputs inputs{x};
    if (as_input)
      inputs.push_back(integers(axes));
    else
      attributes["axes"] = axes;
    const OneCall one("ReduceMean", inputs, attributes, as_input ? 18 : 13, 1);
    const Tensor y = evaluate("ReduceMean", inputs, attributes, one.opset)[0];
    EXPECT_EQ(y.shape(), expected) << "case " << index;
    for (std::int64_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(y.at(i), static_cast<float>(sums[static_cast<std::size_t>(i)] / count)) << "case " << index;
      const Reduction r = one.op().reduction(one.call(), 0, i);
      double total = 0;
      for (const double v : r.a) total += v;
      EXPECT_EQ(total, sums[static_cast<std::size_t>(i)]) << "case " << index;
      EXPECT_EQ(r.divisor, count);
    }
  }
}

TEST(ReduceMean, IntegersAreTruncatedTowardZero) {
  const Tensor x = tensor({2, 2}, {-3, 0, 3, 0}, DType::i32);
  const OneCall one("ReduceMean", {x}, {{"axes", Shape{1}}}, 17, 1);
  EXPECT_EQ(values(one.op(), one.call())[0].to_int64s(), (std::vector<std::int64_t>{-1, 1}));
  const auto verdict = [&](double first, double second) {
    const Tensor got = tensor({2, 1}, {first, second}, DType::i32);
    const std::vector<const Tensor*> outputs{&got};
    return judge_node(one.node, one.opset, one.pointers, outputs)[0];
  };
  EXPECT_EQ(verdict(-1, 1).rung, Rung::exact);
  EXPECT_EQ(verdict(-2, 1).rung, Rung::convention);
  EXPECT_EQ(verdict(-2, 1).explanation, "the quotient is rounded down");
  EXPECT_EQ(verdict(-1, 2).rung, Rung::defect);
  const double most = 4294967295.0;
  EXPECT_EQ(evaluate("ReduceMean", {tensor({2}, {most, most}, DType::u32)})[0].int_at(0), 4294967295);
  const OneCall wraps("ReduceMean", {tensor({2}, {most, most}, DType::u32)}, {}, 17, 1);
  const Tensor got = tensor({1}, {2147483647}, DType::u32);
  const std::vector<const Tensor*> outputs{&got};
  EXPECT_EQ(judge_node(wraps.node, wraps.opset, wraps.pointers, outputs)[0].rung, Rung::convention);
}

TEST(ReduceMean, TheMeanOfNothingIsUnspecified) {
  const OneCall one("ReduceMean", {tensor({2, 0}, {})}, {{"axes", Shape{1}}}, 17, 1);
  EXPECT_EQ(values(one.op(), one.call())[0].shape(), (Shape{2, 1}));
  EXPECT_EQ(one.op().unspecified(one.call(), 0), (std::vector<bool>{true, true}));
  evaluate("ReduceMean", {tensor({2, 0}, {}, DType::i64)}, {{"axes", Shape{1}}});  // no division by zero
}

TEST(ReduceMean, FormulasAgree) {
  Rng rng(11);
  std::vector<double> values(60);
  for (double& v : values) v = rng.normal();
  expect_formulas_agree("ReduceMean", {tensor({4, 15}, values)}, {{"axes", Shape{1}}});
}

TEST(ReduceMean, AxesMayBeUnknownBeforeTheRun) {
  Node node;
  node.op = "ReduceMean";
  node.inputs = {"x", "axes"};
  node.outputs = {"y"};
  const Call call(node, 18, {TensorType{DType::f32, Shape{2, 3}}, TensorType{DType::i64, Shape{1}}},
                  {nullptr, nullptr});
  const auto types = infer_call(*find_operator("", "ReduceMean"), call);
  ASSERT_TRUE(types.has_value());
  EXPECT_FALSE((*types)[0].shape.has_value());
}

}  // namespace
}  // namespace opdiff::testing_ops
