#include <gtest/gtest.h>

#include "one_call.h"
#include "window_reference.h"

namespace opdiff::testing_ops {
namespace {

// The definition in plain loops: image, output channel, window and tap (for_each_tap), input channel.
std::vector<double> convolution(const Axes& axes, const Tensor& x, const Tensor& w, const Tensor* bias,
                                std::int64_t group) {
  const std::int64_t images = x.shape()[0], channels = x.shape()[1], rows = w.shape()[0], depth = w.shape()[1];
  const std::int64_t outputs = axes.outputs(), plane = axes.plane(),
                     taps = axes.d.kernel * axes.h.kernel * axes.w.kernel;
  std::vector<double> y(static_cast<std::size_t>(images * rows * outputs));
  for (std::int64_t n = 0; n < images; ++n)
    for (std::int64_t m = 0; m < rows; ++m) {
      double* row = y.data() + (n * rows + m) * outputs;
      for (std::int64_t o = 0; o < outputs; ++o) row[o] = bias ? bias->at(m) : 0;
      std::int64_t tap = 0;
      for_each_tap(axes, [&](std::int64_t out, bool, std::int64_t position) {
        const std::int64_t k = tap++ % taps;
        if (position < 0) return;
        for (std::int64_t c = 0; c < depth; ++c)
          row[out] += x.at((n * channels + m / (rows / group) * depth + c) * plane + position) *
                      w.at((m * depth + c) * taps + k);
      });
    }
  return y;
}

TEST(Conv, ByHand) {
  // test_basic_conv_with_padding of ONNX: a 3 x 3 box over 0 to 24.
  std::vector<double> values(25);
  for (int i = 0; i < 25; ++i) values[static_cast<std::size_t>(i)] = i;
  const Tensor x = tensor({1, 1, 5, 5}, values), box = tensor({1, 1, 3, 3}, std::vector<double>(9, 1));
  EXPECT_TRUE(evaluate("Conv", {x, box}, {{"pads", Shape{1, 1, 1, 1}}})[0].bit_equal(tensor(
      {1, 1, 5, 5},
      {12, 21, 27, 33, 24, 33, 54, 63, 72, 51, 63, 99, 108, 117, 81, 93, 144, 153, 162, 111, 72, 111, 117, 123, 84})));
  EXPECT_TRUE(evaluate("Conv", {x, box})[0].bit_equal(tensor({1, 1, 3, 3}, {54, 63, 72, 99, 108, 117, 144, 153, 162})));
  // Cross-correlation: the kernel is not flipped.
  EXPECT_TRUE(
      evaluate("Conv", {tensor({1, 1, 3}, {1, 0, 0}), tensor({1, 1, 2}, {10, 20}), tensor({1}, {0.5})})[0].bit_equal(
          tensor({1, 1, 2}, {10.5, 0.5})));
  // test_conv_with_autopad_same.
  EXPECT_TRUE(
      evaluate("Conv", {x, box}, {{"auto_pad", std::string("SAME_LOWER")}, {"strides", Shape{2, 2}}})[0].bit_equal(
          tensor({1, 1, 3, 3}, {12, 27, 24, 63, 108, 81, 72, 117, 84})));
}

TEST(Conv, RandomGeometryOfUpToThreeAxes) {
  for (std::uint64_t index = 0; index < 300; ++index) {
    Rng rng(5, "Conv", index);
    const auto rank = static_cast<std::size_t>(rng.integer(1, 3));
    const std::int64_t group = rng.integer(1, 3), depth = rng.integer(1, 3), rows = rng.integer(1, 3);
    Shape spatial, kernel, strides, dilations, pads, xs{rng.integer(1, 2), group * depth}, ws{group * rows, depth};
    for (std::size_t k = 0; k < rank; ++k) {
      kernel.push_back(rng.integer(1, 4));
      strides.push_back(rng.integer(1, 3));
      dilations.push_back(rng.integer(1, 3));
      spatial.push_back((kernel[k] - 1) * dilations[k] + rng.integer(1, 5));
    }
    for (std::size_t k = 0; k < 2 * rank; ++k) pads.push_back(rng.integer(0, 4));
    xs.insert(xs.end(), spatial.begin(), spatial.end());
    ws.insert(ws.end(), kernel.begin(), kernel.end());
    const char* auto_pad = rng.pick(std::vector<const char*>{"NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
    const DType dtype = rng.pick(std::vector<DType>{DType::f32, DType::f64});
    const Tensor x = whole_numbers(rng, xs, -8, 8, dtype), w = whole_numbers(rng, ws, -8, 8, dtype);
    const Tensor bias = whole_numbers(rng, {group * rows}, -8, 8, dtype);
    const bool with_bias = rng.chance(0.5);
    Attributes attributes{{"kernel_shape", kernel},
                          {"strides", strides},
                          {"dilations", dilations},
                          {"group", group},
                          {"auto_pad", std::string(auto_pad)}};
    if (std::string(auto_pad) == "NOTSET") attributes["pads"] = pads;
    Inputs inputs{x, w};
    if (with_bias) inputs.push_back(bias);
    const Axes axes = axes_of(spatial, kernel, strides, dilations, pads, auto_pad, false);
    const Tensor y = evaluate("Conv", inputs, attributes)[0];
    EXPECT_EQ(y.to_doubles(), convolution(axes, x, w, with_bias ? &bias : nullptr, group)) << "case " << index;
    // Whole numbers: every order is exact, and both formulas say so.
    const OneCall one("Conv", inputs, attributes, 17, 1);
    for (int f = 0; f < 2; ++f) {
      const EnclosedTensor enclosed = enclose(one.op(), one.call(), inner_f32(dtype), f)[0];
      for (const double r : enclosed.radius) EXPECT_EQ(r, 0) << "case " << index;
    }
  }
}

TEST(Conv, ReductionAddsUpToTheValue) {
  Rng rng(6);
  const OneCall one("Conv",
                    {whole_numbers(rng, {2, 4, 5, 6}), whole_numbers(rng, {6, 2, 3, 2}), whole_numbers(rng, {6})},
                    {{"group", std::int64_t{2}}, {"pads", Shape{1, 0, 2, 1}}, {"strides", Shape{2, 1}}}, 17, 1);
  const Tensor y = values(one.op(), one.call())[0];
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const Reduction r = one.op().reduction(one.call(), 0, i);
    ASSERT_EQ(static_cast<std::int64_t>(r.a.size()), element_count(r.extents));
    double total = r.bias;
    for (std::size_t k = 0; k < r.a.size(); ++k) total += r.a[k] * r.b[k];
    EXPECT_EQ(total, y.at(i)) << i;
  }
}

}  // namespace
}  // namespace opdiff::testing_ops
