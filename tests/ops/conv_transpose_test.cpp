#include <gtest/gtest.h>

#include <algorithm>

#include "judge/judge.h"
#include "one_call.h"
#include "ops/gradient.h"

namespace opdiff::testing_ops {
namespace {

// One spatial axis by ONNX's text: tap k of input o writes to o stride - begin + k dilation.
struct Axis {
  std::int64_t input = 1, kernel = 1, stride = 1, dilation = 1, begin = 0, output = 1;

  std::int64_t at(std::int64_t o, std::int64_t k) const {
    const std::int64_t i = o * stride - begin + k * dilation;
    return i >= 0 && i < output ? i : -1;
  }
};

// Every triple (element of x, element of w, element of y) that meets. Axes: three, the leading ones trivial.
template <class Visit>
void for_each_product(const std::vector<Axis>& a, std::int64_t batch, std::int64_t group, std::int64_t channels,
                      std::int64_t outputs, const Visit& visit) {
  for (std::int64_t n = 0; n < batch; ++n)
    for (std::int64_t c = 0; c < group * channels; ++c)
      for (std::int64_t m = 0; m < outputs; ++m)
        for (std::int64_t od = 0; od < a[0].input; ++od)
          for (std::int64_t oh = 0; oh < a[1].input; ++oh)
            for (std::int64_t ow = 0; ow < a[2].input; ++ow)
              for (std::int64_t kd = 0; kd < a[0].kernel; ++kd)
                for (std::int64_t kh = 0; kh < a[1].kernel; ++kh)
                  for (std::int64_t kw = 0; kw < a[2].kernel; ++kw) {
                    const std::int64_t d = a[0].at(od, kd), h = a[1].at(oh, kh), w = a[2].at(ow, kw);
                    if (d < 0 || h < 0 || w < 0) continue;
                    const std::int64_t y_channel = (n * group + c / channels) * outputs + m;
                    visit((((n * group * channels + c) * a[0].input + od) * a[1].input + oh) * a[2].input + ow,
                          (((c * outputs + m) * a[0].kernel + kd) * a[1].kernel + kh) * a[2].kernel + kw,
                          ((y_channel * a[0].output + d) * a[1].output + h) * a[2].output + w);
                  }
}

Tensor conv_transpose(Inputs inputs, Attributes attributes, int opset = 17) {
  return evaluate("ConvTranspose", std::move(inputs), std::move(attributes), opset)[0];
}

TEST(ConvTranspose, ByHand) {
  const Tensor x = tensor({1, 1, 2}, {1, 10}), w = tensor({1, 1, 3}, {1, 2, 3});
  EXPECT_TRUE(conv_transpose({x, w}, {}).bit_equal(tensor({1, 1, 4}, {1, 12, 23, 30})));
  EXPECT_TRUE(conv_transpose({x, w}, {{"strides", Shape{2}}}).bit_equal(tensor({1, 1, 5}, {1, 2, 13, 20, 30})));
  EXPECT_TRUE(conv_transpose({x, w}, {{"strides", Shape{3}}}).bit_equal(tensor({1, 1, 6}, {1, 2, 3, 10, 20, 30})));
  EXPECT_TRUE(conv_transpose({x, w}, {{"dilations", Shape{2}}}).bit_equal(tensor({1, 1, 6}, {1, 10, 2, 20, 3, 30})));
  EXPECT_TRUE(conv_transpose({x, w}, {{"pads", Shape{1, 2}}}).bit_equal(tensor({1, 1, 1}, {12})));
  // What nobody reaches is the bias.
  EXPECT_TRUE(conv_transpose({x, w, tensor({1}, {5})}, {{"strides", Shape{2}}, {"output_padding", Shape{1}}})
                  .bit_equal(tensor({1, 1, 6}, {6, 7, 18, 25, 35, 5})));
  // Groups: channel 0 makes the first two channels, channel 1 the last two.
  EXPECT_TRUE(
      conv_transpose({tensor({1, 2, 1}, {1, 10}), tensor({2, 2, 1}, {1, 2, 3, 4})}, {{"group", std::int64_t{2}}})
          .bit_equal(tensor({1, 4, 1}, {1, 2, 30, 40})));
}

// The odd element of the padding is at the end with SAME_UPPER, else at the beginning; ONNX's text of ConvTranspose-22.
TEST(ConvTranspose, AnInfiniteWeightMeetsNoZerosBetweenInputs) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({1, 1, 3}, {1, 2, 3}), w = tensor({1, 1, 2}, {inf, 1});
  EXPECT_TRUE(conv_transpose({x, w}, {{"strides", Shape{2}}}).bit_equal(tensor({1, 1, 6}, {inf, 1, inf, 2, inf, 3})));
}

TEST(ConvTranspose, PaddingThatFollowsFromTheSize) {
  const Tensor x = tensor({1, 1, 2}, {1, 10}), w = tensor({1, 1, 3}, {1, 2, 3});
  const Attributes strides{{"strides", Shape{2}}};
  const auto with = [&](Attributes more) {
    more.insert(strides.begin(), strides.end());
    return conv_transpose({x, w}, more);
  };
  const Tensor first = tensor({1, 1, 4}, {1, 2, 13, 20}), last = tensor({1, 1, 4}, {2, 13, 20, 30});
  EXPECT_TRUE(with({{"auto_pad", std::string("SAME_UPPER")}}).bit_equal(first));
  EXPECT_TRUE(with({{"auto_pad", std::string("SAME_LOWER")}}).bit_equal(last));
  EXPECT_TRUE(with({{"output_shape", Shape{4}}}).bit_equal(last));
  EXPECT_TRUE(with({{"output_shape", Shape{4}}, {"pads", Shape{7, 7}}}).bit_equal(last));  // pads do not count
  EXPECT_TRUE(with({{"output_shape", Shape{4}}, {"auto_pad", std::string("SAME_UPPER")}}).bit_equal(first));
  EXPECT_TRUE(with({{"output_shape", Shape{4}}, {"auto_pad", std::string("VALID")}}).bit_equal(last));
  EXPECT_TRUE(with({{"auto_pad", std::string("VALID")}}).bit_equal(tensor({1, 1, 5}, {1, 2, 13, 20, 30})));
  // output_padding makes the padding larger, not the result.
  EXPECT_TRUE(with({{"output_shape", Shape{4}}, {"output_padding", Shape{1}}}).bit_equal(last));
  EXPECT_TRUE(
      with({{"output_shape", Shape{3}}, {"output_padding", Shape{1}}}).bit_equal(tensor({1, 1, 3}, {13, 20, 30})));
  EXPECT_TRUE(with({{"auto_pad", std::string("SAME_UPPER")}, {"output_padding", Shape{1}}})
                  .bit_equal(tensor({1, 1, 4}, {2, 13, 20, 30})));
  // No padding is negative: a larger result goes on at the end (test_convtranspose_output_shape of ONNX).
  EXPECT_TRUE(with({{"output_shape", Shape{7}}}).bit_equal(tensor({1, 1, 7}, {1, 2, 13, 20, 30, 0, 0})));
  EXPECT_TRUE(
      conv_transpose({x, tensor({1, 1, 1}, {1})}, {{"strides", Shape{3}}, {"auto_pad", std::string("SAME_UPPER")}})
          .bit_equal(tensor({1, 1, 4}, {1, 0, 0, 10})));
}

TEST(ConvTranspose, WholeNumbersAgainstLoops) {
  for (std::uint64_t index = 0; index < 300; ++index) {
    Rng rng(7, "ConvTranspose", index);
    const auto rank = static_cast<std::size_t>(rng.integer(1, 3));
    const std::int64_t group = rng.integer(1, 3), channels = rng.integer(1, 3), outputs = rng.integer(1, 3),
                       batch = rng.integer(1, 2);
    Shape xs{batch, group * channels}, ws{group * channels, outputs}, ys{batch, group * outputs};
    Shape strides, dilations, extra, pads(2 * rank), shape;
    std::vector<Axis> axes(3);
    const auto mode = rng.integer(0, 4);  // pads, SAME_UPPER, SAME_LOWER, VALID, output_shape
    for (std::size_t d = 0; d < rank; ++d) {
      Axis& a = axes[3 - rank + d];
      a.input = rng.integer(1, 4);
      a.kernel = rng.integer(1, 3);
      a.stride = rng.integer(1, 3);
      a.dilation = rng.integer(1, 2);
      extra.push_back(rng.integer(0, std::max(a.stride, a.dilation) - 1));
      const std::int64_t whole = (a.input - 1) * a.stride + (a.kernel - 1) * a.dilation + 1 + extra[d];
      std::int64_t total = 0;
      if (mode == 0) {
        pads[d] = a.begin = rng.integer(0, std::min<std::int64_t>(whole - 1, 2));
        pads[rank + d] = rng.integer(0, std::min<std::int64_t>(whole - 1 - a.begin, 2));
        total = a.begin + pads[rank + d];
      }
      a.output = whole - total;
      if (mode == 1 || mode == 2) a.output = std::min(whole, a.input * a.stride);
      if (mode == 4) a.output = rng.integer(1, whole + 2);
      shape.push_back(a.output);
      if (mode == 1) a.begin = (whole - a.output) / 2;
      if (mode == 2 || mode == 4) a.begin = std::max<std::int64_t>(whole - a.output + 1, 0) / 2;
      xs.push_back(a.input);
      ws.push_back(a.kernel);
      ys.push_back(a.output);
      strides.push_back(a.stride);
      dilations.push_back(a.dilation);
    }
    Attributes attributes{{"strides", strides}, {"dilations", dilations}, {"group", group}, {"output_padding", extra}};
    if (mode == 0) attributes["pads"] = pads;
    if (mode >= 1 && mode <= 3)
      attributes["auto_pad"] = std::string(mode == 1 ? "SAME_UPPER" : mode == 2 ? "SAME_LOWER" : "VALID");
    if (mode == 4) attributes["output_shape"] = shape;
    const DType dtype = rng.pick(std::vector<DType>{DType::f32, DType::f64});
    const Tensor x = whole_numbers(rng, xs, -8, 8, dtype), w = whole_numbers(rng, ws, -8, 8, dtype);
    const Tensor bias = whole_numbers(rng, {group * outputs}, -8, 8, dtype), dy = whole_numbers(rng, ys, -8, 8, dtype);
    const bool with_bias = rng.chance(0.5);
    Inputs inputs{x, w};
    if (with_bias) inputs.push_back(bias);

    const std::int64_t plane = element_count(ys) / (ys[0] * ys[1]);
    std::vector<double> y(static_cast<std::size_t>(dy.size()), 0), dx(static_cast<std::size_t>(x.size()), 0),
        dw(static_cast<std::size_t>(w.size()), 0), db(static_cast<std::size_t>(bias.size()), 0);
    for_each_product(axes, batch, group, channels, outputs, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      y[static_cast<std::size_t>(k)] += x.at(i) * w.at(j);
      dx[static_cast<std::size_t>(i)] += dy.at(k) * w.at(j);
      dw[static_cast<std::size_t>(j)] += dy.at(k) * x.at(i);
    });
    for (std::int64_t k = 0; k < dy.size(); ++k) {
      const std::int64_t m = k / plane % (group * outputs);
      if (with_bias) y[static_cast<std::size_t>(k)] += bias.at(m);
      db[static_cast<std::size_t>(m)] += dy.at(k);
    }
    const Tensor got = conv_transpose(inputs, attributes);
    ASSERT_EQ(got.shape(), ys) << "case " << index;
    EXPECT_EQ(got.to_doubles(), y) << "case " << index;

    // Whole numbers: every order is exact, and both formulas say so; the terms add up to the value.
    const OneCall one("ConvTranspose", inputs, attributes, 17, 1);
    for (int f = 0; f < 2; ++f) {
      const EnclosedTensor enclosed = enclose(one.op(), one.call(), inner_f32(dtype), f)[0];
      for (const double r : enclosed.radius) EXPECT_EQ(r, 0) << "case " << index;
    }
    const auto total = [](const Reduction& r) {
      EXPECT_EQ(std::ssize(r.a), element_count(r.extents));
      double sum = r.bias;
      for (std::size_t k = 0; k < r.a.size(); ++k) sum += r.a[k] * (r.b.empty() ? 1 : r.b[k]);
      return sum;
    };
    const std::int64_t element = rng.integer(0, got.size() - 1);
    EXPECT_EQ(total(one.op().reduction(one.call(), 0, element)), got.at(element)) << "case " << index;

    Node node = one.node;
    node.domain = std::string(kGradientDomain);
    node.inputs.push_back("dy");
    node.outputs = {"dx", "dw"};
    if (with_bias) node.outputs.push_back("db");
    std::vector<const Tensor*> pointers = one.pointers;
    pointers.push_back(&dy);
    const Call call(node, 17, pointers);
    const MetaOperator& gradient = *one.op().gradient;
    ASSERT_TRUE(infer_call(gradient, call)) << "case " << index;
    const std::vector<Tensor> gradients = values(gradient, call);
    const std::vector<double>* expected[] = {&dx, &dw, &db};
    for (std::size_t k = 0; k < gradients.size(); ++k) {
      EXPECT_EQ(gradients[k].to_doubles(), *expected[k]) << "case " << index << " input " << k;
      const std::int64_t at = rng.integer(0, gradients[k].size() - 1);
      EXPECT_EQ(total(gradient.reduction(call, static_cast<int>(k), at)), gradients[k].at(at)) << "case " << index;
    }
  }
}

// What torch does in 16 bits where oneDNN does not serve it: each tap's product stored, the stored ones added in
// storage.
TEST(ConvTranspose, TapsAddedInStorageAreAnAlgorithmByName) {
  Rng rng(3);
  const std::int64_t channels = 40, length = 30, taps = 7;
  const auto normal = [&](const Shape& shape) {
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (double& v : values) v = rng.normal();
    return Tensor::from_doubles(DType::bf16, shape, values);
  };
  const Tensor x = normal({1, channels, length}), w = normal({channels, 1, taps});
  std::vector<double> y(static_cast<std::size_t>(length + taps - 1), 0);
  for (std::int64_t k = 0; k < taps; ++k)
    for (std::int64_t o = 0; o < length; ++o) {
      double sum = 0;
      for (std::int64_t c = 0; c < channels; ++c)
        sum = round_to(sum + round_to(x.at(c * length + o) * w.at(c * taps + k), kF32), kF32);
      double& element = y[static_cast<std::size_t>(o + k)];
      element = round_to(element + round_to(sum, kBF16), kBF16);
    }
  const OneCall one("ConvTranspose", {x, w}, {}, 22, 1);
  const auto judged = [&](const std::vector<double>& values) {
    const Tensor got = Tensor::from_doubles(DType::bf16, {1, 1, length + taps - 1}, values);
    const Tensor* const outputs[] = {&got};
    return judge_node(one.node, one.opset, one.pointers, outputs)[0];
  };
  const Verdict honest = judged(y);
  EXPECT_EQ(honest.rung, Rung::algorithm) << honest.explanation;
  EXPECT_EQ(honest.explanation, "taps added in bfloat16 (col2im)");
  y[10] += 64 * ulp(y[10], kBF16);
  EXPECT_GE(judged(y).rung, Rung::unlikely);
}

}  // namespace
}  // namespace opdiff::testing_ops
