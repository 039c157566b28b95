#include <gtest/gtest.h>

#include <cmath>

#include "base/npy.h"
#include "graph/onnx_reader.h"
#include "one_call.h"
#include "window_reference.h"

namespace opdiff::testing_ops {
namespace {

// Per plane: sum and divisor of every window.
std::vector<float> averages(const Axes& axes, const std::vector<double>& x, bool counts_padding) {
  std::vector<float> y;
  const auto n = static_cast<std::size_t>(axes.outputs());
  for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(axes.plane())) {
    std::vector<double> sum(n), count(n);
    for_each_tap(axes, [&](std::int64_t out, bool declared, std::int64_t position) {
      const auto o = static_cast<std::size_t>(out);
      if (position >= 0) sum[o] += x[first + static_cast<std::size_t>(position)];
      count[o] += counts_padding ? declared : position >= 0;
    });
    for (std::size_t o = 0; o < n; ++o) y.push_back(static_cast<float>(sum[o] / count[o]));
  }
  return y;
}

void expect_equal(const Tensor& got, const std::vector<float>& right, const std::string& what) {
  ASSERT_EQ(got.size(), static_cast<std::int64_t>(right.size())) << what;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const float r = right[static_cast<std::size_t>(i)];
    if (std::isnan(r))
      EXPECT_TRUE(std::isnan(got.at(i))) << what << " element " << i;
    else
      EXPECT_EQ(got.at(i), r) << what << " element " << i;
  }
}

TEST(AveragePool, ByHand) {
  const Tensor x = tensor({1, 1, 5}, {1, 2, 3, 4, 6});
  EXPECT_TRUE(evaluate("AveragePool", {x}, {{"kernel_shape", Shape{2}}, {"strides", Shape{2}}})[0].bit_equal(
      tensor({1, 1, 2}, {1.5, 3.5})));
  // ceil_mode: the last window holds one element, and nothing that was declared beyond it.
  for (const std::int64_t counts : {0, 1})
    EXPECT_TRUE(evaluate("AveragePool", {x},
                         {{"kernel_shape", Shape{2}},
                          {"strides", Shape{2}},
                          {"ceil_mode", std::int64_t{1}},
                          {"count_include_pad", counts}})[0]
                    .bit_equal(tensor({1, 1, 3}, {1.5, 3.5, 6})));
  // Declared padding counts, what ceil_mode adds beyond it does not: windows {0 1} {2 3} {4 6} {0 |}.
  EXPECT_TRUE(evaluate("AveragePool", {tensor({1, 1, 5}, {1, 2, 3, 4, 6})},
                       {{"kernel_shape", Shape{2}},
                        {"strides", Shape{2}},
                        {"pads", Shape{1, 0}},
                        {"count_include_pad", std::int64_t{1}}})[0]
                  .bit_equal(tensor({1, 1, 3}, {0.5, 2.5, 5})));
  EXPECT_TRUE(evaluate("AveragePool", {x},
                       {{"kernel_shape", Shape{3}},
                        {"strides", Shape{3}},
                        {"pads", Shape{0, 0}},
                        {"ceil_mode", std::int64_t{1}},
                        {"count_include_pad", std::int64_t{1}}})[0]
                  .bit_equal(tensor({1, 1, 2}, {2, 5})));
  EXPECT_TRUE(evaluate("AveragePool", {x}, {{"kernel_shape", Shape{2}}, {"dilations", Shape{3}}}, 19)[0].bit_equal(
      tensor({1, 1, 2}, {2.5, 4})));
}

// The ONNX operator tests test_averagepool_2d_ceil, _same_lower, _same_upper: shapes and corners.
TEST(AveragePool, OnnxCorners) {
  const Tensor x = tensor({1, 1, 4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  EXPECT_TRUE(evaluate("AveragePool", {x},
                       {{"kernel_shape", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"ceil_mode", std::int64_t{1}}})[0]
                  .bit_equal(tensor({1, 1, 2, 2}, {6, 7.5, 12, 13.5})));
  const Tensor y = tensor({1, 1, 3}, {3, 6, 12});
  const auto same = [&](const char* auto_pad) {
    return evaluate("AveragePool", {y}, {{"kernel_shape", Shape{2}}, {"auto_pad", std::string(auto_pad)}})[0];
  };
  EXPECT_TRUE(same("SAME_UPPER").bit_equal(tensor({1, 1, 3}, {4.5, 9, 12})));
  EXPECT_TRUE(same("SAME_LOWER").bit_equal(tensor({1, 1, 3}, {3, 4.5, 9})));
  EXPECT_TRUE(same("VALID").bit_equal(tensor({1, 1, 2}, {4.5, 9})));
}

TEST(AveragePool, EveryGeometryOfOneSmallAxis) {
  Rng rng(1);
  int cases = 0;
  for (std::int64_t input = 1; input <= 6; ++input)
    for (std::int64_t kernel = 1; kernel <= 4; ++kernel)
      for (std::int64_t stride = 1; stride <= 3; ++stride)
        for (std::int64_t dilation = 1; dilation <= 2; ++dilation)
          for (std::int64_t begin = 0; begin <= kernel; ++begin)
            for (std::int64_t end = 0; end <= kernel; ++end)
              for (const std::int64_t ceil_mode : {0, 1})
                for (const std::int64_t counts : {0, 1}) {
                  const Axes axes = axes_of({input}, {kernel}, {stride}, {dilation}, {begin, end}, "NOTSET", ceil_mode);
                  const Tensor x = whole_numbers(rng, {1, 1, input});
                  const Attributes attributes{{"kernel_shape", Shape{kernel}}, {"strides", Shape{stride}},
                                              {"dilations", Shape{dilation}},  {"pads", Shape{begin, end}},
                                              {"ceil_mode", ceil_mode},        {"count_include_pad", counts}};
                  if (axes.w.reach() > begin + input + end) {
                    EXPECT_NE(refusal("AveragePool", {x}, attributes, 19).find("does not fit"), std::string::npos);
                    continue;
                  }
                  expect_equal(evaluate("AveragePool", {x}, attributes, 19)[0],
                               averages(axes, x.to_doubles(), counts != 0),
                               fmt::format("input {} kernel {} stride {} dilation {} pads {} {} ceil {} counts {}",
                                           input, kernel, stride, dilation, begin, end, ceil_mode, counts));
                  ++cases;
                }
  EXPECT_GT(cases, 3000);
}

TEST(AveragePool, RandomGeometryOfUpToThreeAxes) {
  for (std::uint64_t index = 0; index < 200; ++index) {
    Rng rng(2, "AveragePool", index);
    const auto rank = static_cast<std::size_t>(rng.integer(1, 3));
    Shape spatial, kernel, strides, dilations, pads;
    for (std::size_t k = 0; k < rank; ++k) {
      kernel.push_back(rng.integer(1, 4));
      strides.push_back(rng.integer(1, 4));
      dilations.push_back(rng.integer(1, 2));
      spatial.push_back((kernel[k] - 1) * dilations[k] + rng.integer(1, 5));
    }
    for (std::size_t k = 0; k < 2 * rank; ++k) pads.push_back(rng.integer(0, kernel[k % rank] - 1));
    const char* auto_pad = rng.pick(std::vector<const char*>{"NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
    const bool explicit_pads = std::string(auto_pad) == "NOTSET", counts = rng.chance(0.5), ceil_mode = rng.chance(0.5);
    Shape x_shape{rng.integer(1, 2), rng.integer(1, 3)};
    x_shape.insert(x_shape.end(), spatial.begin(), spatial.end());
    const Tensor x = whole_numbers(rng, x_shape);
    Attributes attributes{{"kernel_shape", kernel},
                          {"strides", strides},
                          {"dilations", dilations},
                          {"auto_pad", std::string(auto_pad)},
                          {"ceil_mode", std::int64_t{ceil_mode}},
                          {"count_include_pad", std::int64_t{counts}}};
    if (explicit_pads) attributes["pads"] = pads;
    expect_equal(
        evaluate("AveragePool", {x}, attributes, 22)[0],
        averages(axes_of(spatial, kernel, strides, dilations, pads, auto_pad, ceil_mode), x.to_doubles(), counts),
        fmt::format("case {}", index));
  }
}

TEST(AveragePool, FormulasAgree) {
  Rng rng(3);
  std::vector<double> values(49);
  for (double& v : values) v = rng.normal();
  expect_formulas_agree("AveragePool", {tensor({1, 1, 7, 7}, values)},
                        {{"kernel_shape", Shape{3, 3}}, {"pads", Shape{1, 1, 0, 2}}});
}

TEST(AveragePool, WindowInThePaddingIsUnspecified) {
  // Tap -1 and 2 of an input of two elements.
  const Attributes attributes{{"kernel_shape", Shape{2}}, {"dilations", Shape{3}}, {"pads", Shape{1, 1}}};
  const OneCall one("AveragePool", {tensor({1, 1, 2}, {1, 2})}, attributes, 19, 1);
  EXPECT_EQ(one.op().unspecified(one.call(), 0), std::vector<bool>{true});
  EXPECT_TRUE(std::isnan(evaluate("AveragePool", {tensor({1, 1, 2}, {1, 2})}, attributes, 19)[0].at(0)));
}

TEST(AveragePool, TypesAndAttributesByOpset) {
  const Attributes kernel{{"kernel_shape", Shape{1}}};
  const Tensor x = tensor({1, 1, 2}, {1, 2}), bf16 = tensor({1, 1, 2}, {1, 2}, DType::bf16);
  EXPECT_EQ(refusal("AveragePool", {x}, kernel, 7), "");
  EXPECT_NE(refusal("AveragePool", {bf16}, kernel, 21), "");
  EXPECT_EQ(refusal("AveragePool", {bf16}, kernel, 22), "");
  Attributes dilated = kernel;
  dilated["dilations"] = Shape{1};
  EXPECT_NE(refusal("AveragePool", {x}, dilated, 18), "");
  EXPECT_EQ(refusal("AveragePool", {x}, dilated, 19), "");
  EXPECT_NE(refusal("AveragePool", {x}, {{"kernel_shape", Shape{std::int64_t{1} << 62}}}), "");
}

// The pools that onnxruntime gets wrong: the one-node models, against the values that were found right by hand.
TEST(AveragePool, RealDefects) {
  for (const char* name : {"ort-avgpool-ceil-cip-opset18", "ort-avgpool19-asym-pads"}) {
    const std::filesystem::path folder = std::filesystem::path(OPDIFF_SOURCE_DIR) / "tests/cases" / name;
    const auto graph = read_onnx(folder / "model.onnx");
    ASSERT_TRUE(graph.has_value()) << graph.error().message;
    const auto input = read_npz(folder / "input.npz"), right = read_npz(folder / "right.npz");
    ASSERT_TRUE(input && right);
    ASSERT_EQ(graph->nodes.size(), 1u);
    const Tensor y = evaluate("AveragePool", {input->at("x")}, graph->nodes[0].attributes, graph->opset())[0];
    ASSERT_EQ(y.shape(), right->at("y").shape()) << name;
    for (std::int64_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(y.at(i), static_cast<float>(right->at("y").at(i))) << name << " element " << i;
  }
}

}  // namespace
}  // namespace opdiff::testing_ops
