#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "judge/judge.h"
#include "one_call.h"
#include "window_reference.h"

namespace opdiff::testing_ops {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kNone = -std::numeric_limits<double>::infinity();

struct Maxima {
  std::vector<double> values;
  std::vector<std::int64_t> indices;  // row-major, the first of equals
};

Maxima maxima(const Axes& axes, const std::vector<double>& x) {
  Maxima result;
  const auto n = static_cast<std::size_t>(axes.outputs());
  for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(axes.plane())) {
    std::vector<double> largest(n, kNone);
    std::vector<std::int64_t> index(n, -1);
    for_each_tap(axes, [&](std::int64_t out, bool, std::int64_t position) {
      const auto o = static_cast<std::size_t>(out);
      if (position < 0) return;
      const double v = x[first + static_cast<std::size_t>(position)];
      if (index[o] >= 0 && v <= largest[o]) return;
      largest[o] = v;
      index[o] = static_cast<std::int64_t>(first) + position;
    });
    result.values.insert(result.values.end(), largest.begin(), largest.end());
    result.indices.insert(result.indices.end(), index.begin(), index.end());
  }
  return result;
}

TEST(MaxPool, ByHand) {
  // test_maxpool_2d_precomputed_pads, _strides, test_maxpool_with_argmax_2d_* of ONNX: 1 to 25 in rows.
  std::vector<double> values(25);
  for (int i = 0; i < 25; ++i) values[static_cast<std::size_t>(i)] = i + 1;
  const Tensor x = tensor({1, 1, 5, 5}, values);
  const auto padded = evaluate("MaxPool", {x}, {{"kernel_shape", Shape{5, 5}}, {"pads", Shape{2, 2, 2, 2}}}, 17, 2);
  EXPECT_TRUE(padded[0].bit_equal(tensor({1, 1, 5, 5}, {13, 14, 15, 15, 15, 18, 19, 20, 20, 20, 23, 24, 25,
                                                        25, 25, 23, 24, 25, 25, 25, 23, 24, 25, 25, 25})));
  EXPECT_EQ(padded[1].to_int64s(), (std::vector<std::int64_t>{12, 13, 14, 14, 14, 17, 18, 19, 19, 19, 22, 23, 24,
                                                              24, 24, 22, 23, 24, 24, 24, 22, 23, 24, 24, 24}));
  const auto strided =
      evaluate("MaxPool", {x},
               {{"kernel_shape", Shape{2, 2}}, {"strides", Shape{2, 2}}, {"storage_order", std::int64_t{1}}}, 17, 2);
  EXPECT_TRUE(strided[0].bit_equal(tensor({1, 1, 2, 2}, {7, 9, 17, 19})));
  EXPECT_EQ(strided[1].to_int64s(), (std::vector<std::int64_t>{6, 16, 8, 18}));
  EXPECT_TRUE(
      evaluate("MaxPool", {x},
               {{"kernel_shape", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}})[0]
          .bit_equal(tensor({1, 1, 3, 3}, {7, 9, 10, 17, 19, 20, 22, 24, 25})));
  const Tensor small = tensor({1, 1, 4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  EXPECT_TRUE(evaluate("MaxPool", {small},
                       {{"kernel_shape", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"ceil_mode", std::int64_t{1}}})[0]
                  .bit_equal(tensor({1, 1, 2, 2}, {11, 12, 15, 16})));
  EXPECT_TRUE(evaluate("MaxPool", {small}, {{"kernel_shape", Shape{2, 2}}, {"dilations", Shape{2, 2}}})[0].bit_equal(
      tensor({1, 1, 2, 2}, {11, 12, 15, 16})));
}

// test_maxpool_2d_ceil_output_size_reduce_by_one: a window that would start in the end padding is left out.
TEST(MaxPool, NoWindowStartsInTheEndPadding) {
  const Tensor x = tensor({1, 1, 2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(evaluate("MaxPool", {x},
                       {{"kernel_shape", Shape{1, 1}}, {"strides", Shape{2, 2}}, {"ceil_mode", std::int64_t{1}}})[0]
                  .bit_equal(tensor({1, 1, 1, 1}, {1})));
}

TEST(MaxPool, PaddingNeverWins) {
  const Attributes attributes{{"kernel_shape", Shape{3}}, {"pads", Shape{1, 1}}};
  EXPECT_TRUE(evaluate("MaxPool", {tensor({1, 1, 2}, {-5, -7})}, attributes)[0].bit_equal(tensor({1, 1, 2}, {-5, -5})));
  EXPECT_EQ(evaluate("MaxPool", {tensor({1, 1, 2}, {kNone, kNone})}, attributes)[0].at(0), kNone);
  EXPECT_EQ(evaluate("MaxPool", {tensor({1, 1, 2}, {-128, -127}, DType::i8)}, attributes)[0].int_at(1), -127);
  EXPECT_EQ(evaluate("MaxPool", {tensor({1, 1, 2}, {3, 250}, DType::u8)}, attributes)[0].int_at(0), 250);
}

TEST(MaxPool, RandomGeometryOfUpToThreeAxes) {
  for (std::uint64_t index = 0; index < 300; ++index) {
    Rng rng(4, "MaxPool", index);
    const auto rank = static_cast<std::size_t>(rng.integer(1, 3));
    Shape spatial, kernel, strides, dilations, pads;
    for (std::size_t k = 0; k < rank; ++k) {
      kernel.push_back(rng.integer(1, 4));
      strides.push_back(rng.integer(1, 4));
      dilations.push_back(rng.integer(1, 3));
      spatial.push_back((kernel[k] - 1) * dilations[k] + rng.integer(1, 5));
    }
    for (std::size_t k = 0; k < 2 * rank; ++k) pads.push_back(rng.integer(0, kernel[k % rank] - 1));
    const char* auto_pad = rng.pick(std::vector<const char*>{"NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
    const bool explicit_pads = std::string(auto_pad) == "NOTSET", ceil_mode = rng.chance(0.5),
               columns = rng.chance(0.5);
    Shape x_shape{rng.integer(1, 2), rng.integer(1, 3)};
    x_shape.insert(x_shape.end(), spatial.begin(), spatial.end());
    const DType dtype = rng.pick(std::vector<DType>{DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8});
    const Tensor x = whole_numbers(rng, x_shape, -20, 20, dtype);
    Attributes attributes{{"kernel_shape", kernel},
                          {"strides", strides},
                          {"dilations", dilations},
                          {"auto_pad", std::string(auto_pad)},
                          {"storage_order", std::int64_t{columns}},
                          {"ceil_mode", std::int64_t{ceil_mode}}};
    if (explicit_pads) attributes["pads"] = pads;
    const Axes axes = axes_of(spatial, kernel, strides, dilations, pads, auto_pad, ceil_mode);
    const Maxima right = maxima(axes, x.to_doubles());
    const OneCall one("MaxPool", {x}, attributes, 22, 2);
    const std::vector<Tensor> y = evaluate("MaxPool", {x}, attributes, 22, 2);
    ASSERT_EQ(y[0].size(), static_cast<std::int64_t>(right.values.size())) << "case " << index;
    for (std::int64_t i = 0; i < y[0].size(); ++i) {
      const auto k = static_cast<std::size_t>(i);
      EXPECT_EQ(y[0].at(i), right.values[k]) << "case " << index << " element " << i;
      const std::int64_t flat = right.indices[k], plane = axes.plane();
      const std::int64_t within = flat % plane, d = within / axes.w.input / axes.h.input,
                         h = within / axes.w.input % axes.h.input, w = within % axes.w.input;
      // Column-major over the spatial axes: the first one runs fastest.
      const std::int64_t expected = columns ? flat / plane * plane + d + axes.d.input * (h + axes.h.input * w) : flat;
      EXPECT_EQ(y[1].int_at(i), expected) << "case " << index << " element " << i;
      EXPECT_TRUE(one.op().accepts_integer(one.call(), 1, i, expected));
      EXPECT_FALSE(one.op().accepts_integer(one.call(), 1, i, -1));
      EXPECT_FALSE(one.op().accepts_integer(one.call(), 1, i, x.size()));
    }
  }
}

TEST(MaxPool, AnIndexIsJudgedByTheValueItPointsTo) {
  const OneCall one("MaxPool", {tensor({1, 1, 6}, {5, 5, 1, 5, 0, 5})}, {{"kernel_shape", Shape{3}}}, 17, 2);
  const auto accepts = [&](std::int64_t element, std::int64_t value) {
    return one.op().accepts_integer(one.call(), 1, element, value);
  };
  EXPECT_TRUE(accepts(0, 0));
  EXPECT_TRUE(accepts(0, 1));   // the other of two equals
  EXPECT_FALSE(accepts(0, 2));  // in the window, not the maximum
  EXPECT_FALSE(accepts(0, 3));  // equal to the maximum, outside the window
  EXPECT_TRUE(accepts(3, 5));
  const std::vector<Tensor> right = values(one.op(), one.call());
  const Tensor other = integers({1, 1, 3, 5}).reshaped({1, 1, 4}), wrong = integers({3, 1, 3, 5}).reshaped({1, 1, 4});
  const std::vector<const Tensor*> good{&right[0], &other}, bad{&right[0], &wrong};
  EXPECT_EQ(judge_node(one.node, one.opset, one.pointers, good)[1].rung, Rung::exact);
  EXPECT_EQ(judge_node(one.node, one.opset, one.pointers, bad)[1].rung, Rung::defect);
}

TEST(MaxPool, NaNIsAConvention) {
  const OneCall one("MaxPool", {tensor({1, 1, 5}, {1, kNaN, 2, kNaN, kNaN})}, {{"kernel_shape", Shape{2}}}, 17, 1);
  const auto verdict = [&](std::vector<double> y) {
    const Tensor got = tensor({1, 1, 4}, std::move(y));
    const std::vector<const Tensor*> outputs{&got};
    return judge_node(one.node, one.opset, one.pointers, outputs)[0];
  };
  EXPECT_EQ(verdict({kNaN, kNaN, kNaN, kNaN}).rung, Rung::exact);  // NaN propagates
  const Verdict ignored = verdict({1, 2, 2, kNaN});
  EXPECT_EQ(ignored.rung, Rung::convention);
  EXPECT_EQ(ignored.explanation, "NaN is ignored");
  EXPECT_EQ(verdict({1, 2, 2, kNone}).rung, Rung::convention);
  EXPECT_EQ(verdict({1, kNaN, 2, kNaN}).rung, Rung::convention);  // NaN counts as the first element of a window only
  EXPECT_EQ(verdict({2, 2, 2, kNaN}).rung, Rung::defect);
  // Without NaN there is no choice.
  EXPECT_TRUE(
      OneCall("MaxPool", {tensor({1, 1, 2}, {1, 2})}, {{"kernel_shape", Shape{2}}}, 17, 1)
          .op()
          .conventions(OneCall("MaxPool", {tensor({1, 1, 2}, {1, 2})}, {{"kernel_shape", Shape{2}}}, 17, 1).call())
          .empty());
}

TEST(MaxPool, WindowInThePaddingIsUnspecified) {
  const OneCall one("MaxPool", {tensor({1, 1, 2}, {1, 2})},
                    {{"kernel_shape", Shape{2}}, {"dilations", Shape{3}}, {"pads", Shape{1, 1}}}, 17, 1);
  for (const double y : {0.0, -3.4e38, kNone, 17.0}) {
    const Tensor got = tensor({1, 1, 1}, {y});
    const std::vector<const Tensor*> outputs{&got};
    const Verdict v = judge_node(one.node, one.opset, one.pointers, outputs)[0];
    EXPECT_EQ(v.rung, Rung::exact) << y;
    EXPECT_EQ(v.unspecified_elements, 1);
  }
}

TEST(MaxPool, TypesAndOutputsByOpset) {
  const Attributes kernel{{"kernel_shape", Shape{1}}};
  const auto x = [](DType dtype) { return tensor({1, 1, 2}, {1, 2}, dtype); };
  EXPECT_NE(refusal("MaxPool", {x(DType::i8)}, kernel, 11), "");
  EXPECT_EQ(refusal("MaxPool", {x(DType::i8)}, kernel, 12), "");
  EXPECT_NE(refusal("MaxPool", {x(DType::bf16)}, kernel, 21), "");
  EXPECT_EQ(refusal("MaxPool", {x(DType::bf16)}, kernel, 22), "");
  EXPECT_NE(refusal("MaxPool", {x(DType::f32)}, kernel, 7, 2), "");
  EXPECT_EQ(refusal("MaxPool", {x(DType::f32)}, kernel, 8, 2), "");
  EXPECT_NE(refusal("MaxPool", {x(DType::i32)}, kernel), "");
}

}  // namespace
}  // namespace opdiff::testing_ops
