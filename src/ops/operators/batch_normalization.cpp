#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct BatchNormalization {
  static constexpr std::string_view kName = "BatchNormalization";
  static constexpr std::string_view kDocumentation =
      R"(Y = (X - mean) / sqrt(var + epsilon) * scale + B, per channel (axis 1), with the statistics given

X [N, C, ...], scale, B, mean, var [C]. Inference only: training_mode = 1 is refused. Two formulas are in use everywhere and admissible:
normalise then scale, and the folded scale and shift x * (scale r) + (B - mean scale r), which cancels where x is near the mean.)";
  static constexpr Arity kInputs{5, 5};
  static constexpr Arity kOutputs{1, 5};

  static std::vector<AttributeSpec> attributes() {
    return {{"epsilon", AttributeKind::real, "added to the variance; default 1e-5"},
            {"momentum", AttributeKind::real, "training only; default 0.9"},
            {"spatial", AttributeKind::integer, "1: one statistic a channel (the only one supported)", 1, 8},
            {"training_mode", AttributeKind::integer, "0 (default); 1 is not supported yet", 14}};
  }
  static std::vector<std::string_view> formulas() { return {"normalise, then scale", "folded scale and shift"}; }

  static Expected<Types> infer(const Call& call) {
    if (call.integer("training_mode", 0) != 0)
      return make_error("attribute 'training_mode' is {}, only inference (0) is supported",
                        call.integer("training_mode", 0));
    if (call.integer("spatial", 1) != 1)
      return make_error("attribute 'spatial' is {}, only 1 is supported", call.integer("spatial", 1));
    if (call.node().outputs.size() > 1) {
      for (std::size_t k = 1; k < call.node().outputs.size(); ++k)
        if (call.wants(k)) return make_error("output {} exists in training mode only", k);
    }
    if (call.dtype(0) == DType::bf16 && call.opset() < 14)
      return make_error("X has type bfloat16, which the operator takes from opset 14 on (opset {})", call.opset());
    const Shape& x = call.shape(0);
    if (x.size() < 2) return make_error("X has shape {}, expected at least 2 dimensions", to_string(x));
    static constexpr const char* kNames[] = {"X", "scale", "B", "mean", "var"};
    for (int k = 1; k < 5; ++k) {
      if (call.shape(k) != Shape{x[1]})
        return make_error("{} has shape {}, expected [{}] for X {}", kNames[k], to_string(call.shape(k)), x[1],
                          to_string(x));
      if (!is_float(call.dtype(k)))
        return make_error("{} has type {}, expected a floating type", kNames[k], dtype_name(call.dtype(k)));
    }
    return Types{{call.dtype(0), x}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Shape& shape = frame.call().shape(0);
    const auto x = frame.input(0), scale = frame.input(1), shift = frame.input(2), mean = frame.input(3),
               variance = frame.input(4);
    const auto y = frame.output(0, shape);
    const T epsilon(static_cast<double>(static_cast<float>(frame.call().real("epsilon", 1e-5))));
    const std::int64_t channels = shape[1];
    const std::int64_t plane =
        channels == 0 || shape[0] == 0 ? 0 : static_cast<std::int64_t>(x.size()) / shape[0] / channels;
    for (std::int64_t c = 0; c < channels && plane > 0; ++c) {
      const auto k = static_cast<std::size_t>(c);
      const T reciprocal = T(1) / sqrt(T(variance[k]) + epsilon);
      const T folded = share(T(scale[k]) * reciprocal, 0);
      const T offset = T(shift[k]) - T(mean[k]) * folded;
      for (std::int64_t n = 0; n < shape[0]; ++n)
        for (std::int64_t i = 0; i < plane; ++i) {
          const auto at = static_cast<std::size_t>((n * channels + c) * plane + i);
          y[at] = frame.formula() == 0 ? (T(x[at]) - T(mean[k])) * reciprocal * T(scale[k]) + T(shift[k])
                                       : T(x[at]) * folded + offset;
        }
    }
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dX = dY scale / sqrt(var + epsilon), dscale = sum of dY (X - mean) / sqrt(var + epsilon), dB = sum of dY; sums over
all axes but the channels. mean and var are constants here (inference). The factor multiplies the sum or its terms.)";

  static std::vector<int> differentiable() { return {0, 1, 2}; }
  static std::vector<std::string_view> gradient_formulas() {
    return {"factors folded, sum times the reciprocal", "scale first, terms times the reciprocal", "reciprocal first"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Shape& shape = frame.call().shape(0);
    const auto x = frame.input(0), scale = frame.input(1), mean = frame.input(3), variance = frame.input(4),
               dy = frame.cotangent();
    const auto dx = frame.wants(0) ? frame.gradient(0) : std::span<T>();
    const auto dscale = frame.wants(1) ? frame.gradient(1) : std::span<T>();
    const auto dshift = frame.wants(2) ? frame.gradient(2) : std::span<T>();
    const T epsilon(static_cast<double>(static_cast<float>(frame.call().real("epsilon", 1e-5))));
    const std::int64_t channels = shape[1];
    const std::int64_t plane =
        channels == 0 || shape[0] == 0 ? 0 : static_cast<std::int64_t>(x.size()) / shape[0] / channels;
    const bool folds = frame.formula() == 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto k = static_cast<std::size_t>(c);
      const T reciprocal = share(T(1) / sqrt(T(variance[k]) + epsilon), 0);
      const T folded = share(T(scale[k]) * reciprocal, 0);
      Sum<T> products, cotangents;
      for (std::int64_t n = 0; n < shape[0]; ++n)
        for (std::int64_t i = 0; i < plane; ++i) {
          const auto at = static_cast<std::size_t>((n * channels + c) * plane + i);
          const T cotangent(dy[at]), centred = T(x[at]) - T(mean[k]);
          products.add(folds ? cotangent * centred : cotangent * (centred * reciprocal));
          cotangents.add(cotangent);
          if (!dx.empty())
            dx[at] = folds                  ? cotangent * folded
                     : frame.formula() == 1 ? cotangent * T(scale[k]) * reciprocal
                                            : cotangent * reciprocal * T(scale[k]);
        }
      if (!dscale.empty()) dscale[k] = folds ? products.result() * reciprocal : products.result();
      if (!dshift.empty()) dshift[k] = cotangents.result();
    }
  }

  static std::vector<int> gradient_group_axes(const GradientCall&, int k) {
    return {k == 0 ? 1 : 0};  // by channel
  }

  static std::vector<int> group_axes(const Call&, int) { return {1}; }

  static Sample sample(SampleContext& c) {
    Shape shape = c.shape(2, 5, 7);
    if (c.rng().chance(0.2)) shape[1] = c.extent(1, 40);
    const Shape channel{shape[1]};
    Sample s = c.make(
        kName, {c.tensor(shape), c.weights(channel, 1), c.tensor(channel), c.tensor(channel), c.positive(channel)});
    if (c.rng().chance(0.5)) s.node.attributes["epsilon"] = static_cast<float>(std::pow(10.0, c.rng().uniform(-7, -2)));
    if (c.rng().chance(0.3)) s.node.attributes["momentum"] = 0.9f;
    if (c.dtype() == DType::bf16) s.opset = std::max(s.opset, 14);
    const bool weights = c.rng().chance(0.7);
    for (std::size_t k = 1; k < 5; ++k) s.initialiser[k] = weights;
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {1, 3, 2}), c = Tensor::zeros(DType::f32, {3}),
                 d = Tensor::zeros(DType::f32, {2});
    return {refused_sample(kName, {x, c, c, c, c}, {{"training_mode", std::int64_t{1}}}, "training_mode"),
            refused_sample(kName, {x, d, c, c, c}, {}, "scale"),
            refused_sample(kName, {x, c, c, c, d}, {}, "var"),
            refused_sample(kName, {Tensor::zeros(DType::f32, {3}), c, c, c, c}, {}, "dimensions"),
            refused_sample(kName, {x, c, c, c, c}, {{"epsilon", std::int64_t{1}}}, "epsilon"),
            refused_sample(kName, {Tensor::zeros(DType::bf16, {1, 3, 2}), c, c, c, c}, {}, "bfloat16", 13),
            refused_sample(kName, {x, c, c, c}, {}, "inputs")};
  }
};

}  // namespace

const MetaOperator& batch_normalization() {
  static const MetaOperator op = describe<BatchNormalization>();
  return op;
}

}  // namespace opdiff::operators
