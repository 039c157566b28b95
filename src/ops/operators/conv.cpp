#include <algorithm>
#include <limits>

#include "ops/convolution.h"
#include "ops/op.h"
#include "ops/winograd.h"

namespace opdiff::operators {
namespace {

struct Conv {
  static constexpr std::string_view kName = "Conv";
  static constexpr std::string_view kDocumentation =
      R"(Y[n, m, o] = B[m] + sum over c, k of X[n, g C/G + c, o s - p + k d] W[m, c, k]

X [N, C, spatial...], W [M, C/group, kernel...], optional B [M]; 1 to 3 spatial dimensions; cross-correlation (the kernel is
not flipped); positions in the padding count as zero. The bias may be added last or be the start of the accumulation: both are
admissible. Frameworks differ in the order of summation, in direct, im2col, Winograd and FFT algorithms, and (by default on some
hardware) in the format of the operands.)";
  static constexpr Arity kInputs{2, 3};

  static std::vector<AttributeSpec> attributes() {
    return {{"auto_pad", AttributeKind::text, "NOTSET (default), VALID, SAME_UPPER, SAME_LOWER"},
            {"dilations", AttributeKind::integers, "one per spatial dimension, at least 1; default 1"},
            {"group", AttributeKind::integer, "number of groups; default 1; divides C and M"},
            {"kernel_shape", AttributeKind::integers, "must equal W's spatial shape; default: that shape"},
            {"pads", AttributeKind::integers, "begins, then ends; default 0"},
            {"strides", AttributeKind::integers, "one per spatial dimension, at least 1; default 1"}};
  }
  static std::vector<std::string_view> formulas() { return {"bias added last", "bias added first"}; }
  static std::vector<int> product_inputs() { return {0, 1}; }

  static Expected<Window> window(const Call& call) {
    const Shape& x = call.shape(0);
    OPDIFF_TRY(const Shape kernel, convolution_kernel(call));
    return make_window(call, Shape(x.begin() + 2, x.end()), kernel, false);
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_TRY(const Window win, window(call));
    const Shape& x = call.shape(0);
    const Shape& w = call.shape(1);
    const std::int64_t group = call.integer("group", 1);
    if (x[1] % group != 0 || x[1] / group != w[1])
      return make_error("W {} and group {} need {} input channels in each group, X {} has {} in all", to_string(w),
                        group, w[1], to_string(x), x[1]);
    if (w[0] % group != 0)
      return make_error("group {} does not divide the {} output channels of W {}", group, w[0], to_string(w));
    if (call.has(2) && call.shape(2) != Shape{w[0]})
      return make_error("B has shape {}, expected [{}]", to_string(call.shape(2)), w[0]);
    Shape y{x[0], w[0]};
    y.insert(y.end(), win.output.begin(), win.output.end());
    return Types{{call.dtype(0), y}};
  }

  static Convolution geometry(const Call& call) {
    const Shape& w = call.shape(1);
    const std::int64_t group = call.integer("group", 1);
    return {*window(call), call.shape(0)[0], group, w[0] / group, w[1]};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    using Exact = typename Frame<T>::Exact;
    const Call& call = frame.call();
    const Convolution c = geometry(call);
    Shape shape{c.batch, call.shape(1)[0]};
    shape.insert(shape.end(), c.window.output.begin(), c.window.output.end());
    const auto bias = call.has(2) ? frame.input(2) : std::span<const Exact>();
    const bool bias_first = frame.formula() == 1;
    const std::span<const Exact> none;
    convolve<T>(c, frame.input(0), frame.input(1), bias_first ? bias : none, bias_first ? none : bias,
                [&](std::int64_t count, const auto& fill) { frame.output_pieces(0, shape, count, fill); });
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dX[n, c, i] = sum over m, k of dY[n, m, o] W[m, c, k] where o s - p + k d = i
dW[m, c, k] = sum over n, o of dY[n, m, o] X[n, c, o s - p + k d]
dB[m] = sum over n, o of dY[n, m, o])";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    using Exact = typename GradientFrame<T>::Exact;
    const Convolution c = geometry(frame.call());
    const auto dy = frame.cotangent();
    if (frame.wants(0))
      convolve_transposed<T>(c, dy, frame.input(1), std::span<const Exact>(),
                             [&](std::int64_t count, const auto& fill) { frame.gradient_pieces(0, count, fill); });
    if (frame.wants(1)) convolve_weights(c, dy, frame.input(0), frame.gradient(1));
    if (frame.wants(2)) sum_channels(c.batch, c.positions(), dy, frame.gradient(2));
  }

  static Reduction gradient_reduction(const GradientCall& gradient, int which, std::int64_t index) {
    const Call& call = gradient.forward();
    const Tensor& dy = *gradient.cotangent(0);
    if (which == 2) return channel_terms(dy, index);
    return which == 0 ? convolve_transposed_terms(geometry(call), dy, *call.tensor(1), index)
                      : convolve_weights_terms(geometry(call), dy, *call.tensor(0), index);
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    const Convolution c = geometry(call);
    Reduction r = convolve_terms(c, *call.tensor(0), *call.tensor(1), index);
    r.has_bias = call.has(2);
    if (r.has_bias) r.bias = call.tensor(2)->at(index / c.positions() % (c.group * c.rows));
    return r;
  }

  static std::vector<NamedAlgorithm> algorithms(const Call& call) { return winograd_algorithms(call, *window(call)); }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const auto rank = static_cast<std::size_t>(rng.chance(0.6) ? 2 : rng.integer(1, 3));
    const std::int64_t group = rng.chance(0.7) ? 1 : c.extent(2, 4);
    const std::int64_t depth = c.extent(1, rng.chance(0.2) ? 40 : 8), rows = c.extent(1, 8);
    Shape x{c.extent(1, 3), depth * group}, w{rows * group, depth}, kernel, pads, strides, dilations;
    for (std::size_t d = 0; d < rank; ++d) {
      kernel.push_back(rng.chance(0.4) ? 3 : c.extent(1, 5));
      dilations.push_back(rng.chance(0.8) ? 1 : c.extent(1, 3));
      strides.push_back(rng.chance(0.6) ? 1 : c.extent(1, 3));
      x.push_back((kernel[d] - 1) * dilations[d] + 1 + c.extent(0, rank == 3 ? 5 : 12));
      w.push_back(kernel[d]);
    }
    for (std::size_t d = 0; d < 2 * rank; ++d)
      pads.push_back(rng.chance(0.5) ? 0 : rng.integer(0, kernel[d % rank] - 1));
    std::vector<std::optional<Tensor>> inputs{c.tensor(x), c.weights(w, depth * element_count(kernel))};
    if (rng.chance(0.6)) inputs.push_back(c.tensor({rows * group}));
    Sample s = c.make(kName, std::move(inputs));
    if (c.dtype() == DType::bf16) s.opset = std::max(s.opset, 22);
    if (rng.chance(0.7)) s.node.attributes["kernel_shape"] = kernel;
    if (group > 1 || rng.chance(0.3)) s.node.attributes["group"] = group;
    if (rng.chance(0.8)) s.node.attributes["strides"] = strides;
    const bool auto_pad = rng.chance(0.2);
    if (!auto_pad || rng.chance(0.5)) s.node.attributes["dilations"] = dilations;
    if (auto_pad)
      s.node.attributes["auto_pad"] =
          std::string(rng.pick(std::vector<const char*>{"SAME_UPPER", "SAME_LOWER", "VALID"}));
    else if (rng.chance(0.8))
      s.node.attributes["pads"] = pads;
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = rng.chance(0.5) || k == 2;
    if (s.initialiser.size() > 2) s.initialiser[2] = s.initialiser[1];
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {1, 4, 5, 5}), w = Tensor::zeros(DType::f32, {2, 4, 3, 3});
    const auto refuse = [&](std::map<std::string, Attribute> attributes, std::string why) {
      return refused_sample(kName, {x, w}, std::move(attributes), std::move(why));
    };
    return {refuse({{"group", std::int64_t{3}}}, "group"),
            refuse({{"group", std::int64_t{0}}}, "group"),
            refuse({{"group", std::numeric_limits<std::int64_t>::max()}}, "group"),
            refuse({{"strides", Shape{0, 1}}}, "strides"),
            refuse({{"strides", Shape{1}}}, "strides"),
            refuse({{"dilations", Shape{4, 4}}}, "does not fit"),
            refuse({{"pads", Shape{1, 1}}}, "pads"),
            refuse({{"pads", Shape{0, 0, 0, -1}}}, "pads"),
            refuse({{"auto_pad", std::string("SAME")}}, "auto_pad"),
            refuse({{"kernel_shape", Shape{2, 2}}}, "kernel_shape"),
            refuse({{"kernel", Shape{3, 3}}}, "kernel"),
            refuse({{"strides", 1.5f}}, "strides"),
            refused_sample(kName, {x, Tensor::zeros(DType::f32, {2, 3, 3, 3})}, {}, "channels"),
            refused_sample(kName, {x, Tensor::zeros(DType::f64, {2, 4, 3, 3})}, {}, "type"),
            refused_sample(kName, {x, w, Tensor::zeros(DType::f32, {3})}, {}, "B"),
            refused_sample(kName, {Tensor::zeros(DType::bf16, {1, 4, 5, 5}), Tensor::zeros(DType::bf16, {2, 4, 3, 3})},
                           {}, "bfloat16", 21),
            refused_sample(kName, {Tensor::zeros(DType::i32, {1, 4, 5, 5}), w}, {}, "type")};
  }
};

}  // namespace

const MetaOperator& conv() {
  static const MetaOperator op = describe<Conv>();
  return op;
}

}  // namespace opdiff::operators
