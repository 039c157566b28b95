#include <algorithm>
#include <cmath>

#include "numerics/moments.h"
#include "ops/evaluate.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct BatchNormalization {
  static constexpr std::string_view kName = "BatchNormalization";
  static constexpr std::string_view kDocumentation =
      R"(Y = (X - mean) / sqrt(var + epsilon) * scale + B, per channel (axis 1), with the statistics given

X [N, C, ...], scale, B, mean, var [C]. Two formulas are in use everywhere and admissible: normalise then scale, and the folded scale
and shift x * (scale r) + (B - mean scale r), which cancels where x is near the mean.

With training_mode = 1 (opset 14) the statistics are those of the batch, per channel over all other axes, with the biased variance
(divided by the count n), and the outputs 1 and 2 are

  running_mean = mean * momentum + batch mean * (1 - momentum), running_var = var * momentum + batch variance * (1 - momentum)

The batch variance may be computed in two passes or while it runs (Welford). As E[X^2] - E[X]^2 in one pass it loses the digits that
X's mean takes: an algorithm by name. ONNX stores the biased variance in running_var; torch divides by n - 1: an algorithm by name.
Frameworks whose momentum is 1 - momentum round that and take the factor of the old statistics as 1 minus it.)";
  static constexpr Arity kInputs{5, 5};
  static constexpr Arity kOutputs{1, 5};

  static std::vector<AttributeSpec> attributes() {
    return {{"epsilon", AttributeKind::real, "added to the variance; default 1e-5"},
            {"momentum", AttributeKind::real, "of the running statistics, training only; default 0.9"},
            {"spatial", AttributeKind::integer, "1: one statistic a channel (the only one supported)", 1, 8},
            {"training_mode", AttributeKind::integer, "1: statistics of the batch; default 0", 14}};
  }
  static std::vector<std::string_view> formulas() {
    return {"normalise, then scale", "folded scale and shift", "running (Welford) statistics",
            "momentum from its complement"};
  }

  static bool trains(const Call& call) { return call.integer("training_mode", 0) != 0; }

  static Expected<Types> infer(const Call& call) {
    if (const std::int64_t mode = call.integer("training_mode", 0); mode != 0 && mode != 1)
      return make_error("attribute 'training_mode' is {}, expected 0 or 1", mode);
    if (call.integer("spatial", 1) != 1)
      return make_error("attribute 'spatial' is {}, only 1 is supported", call.integer("spatial", 1));
    for (std::size_t k = trains(call) ? 3 : 1; k < call.node().outputs.size(); ++k)
      if (call.wants(k))
        return trains(call) ? make_error("output {} does not exist from opset 14 on", k)
                            : make_error("output {} exists in training mode only", k);
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
    if (!trains(call)) return Types{{call.dtype(0), x}};
    return Types{{call.dtype(0), x}, {call.dtype(3), Shape{x[1]}}, {call.dtype(4), Shape{x[1]}}};
  }

  static DType output_dtype(const Call& call, int output) { return call.dtype(output == 0 ? 0 : output + 2); }

  template <class T>
  static void forward(Frame<T>& frame) {
    if (trains(frame.call())) return train(frame);
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
          y[at] = frame.formula() != 1 ? (T(x[at]) - T(mean[k])) * reciprocal * T(scale[k]) + T(shift[k])
                                       : T(x[at]) * folded + offset;
        }
    }
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dX = dY scale / sqrt(var + epsilon), dscale = sum of dY (X - mean) / sqrt(var + epsilon), dB = sum of dY; sums over
all axes but the channels. mean and var are constants in inference. The factor multiplies the sum or its terms. In training they depend
on X: with x = (X - batch mean) / sqrt(batch variance + epsilon), over n elements a channel,

  dX = scale / sqrt(batch variance + epsilon) (dY - sum(dY) / n - x sum(dY x) / n), dscale = sum(dY x), dB = sum(dY)

and the cotangents of running_mean and running_var, where they are given, add theirs.)";

  static std::vector<int> differentiable() { return {0, 1, 2}; }
  static std::vector<std::string_view> gradient_formulas() {
    return {"factors folded, sum times the reciprocal", "scale first, terms times the reciprocal", "reciprocal first"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    if (trains(frame.call())) return train_gradient(frame);
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

  static std::vector<int> group_axes(const Call&, int output) { return {output == 0 ? 1 : 0}; }

  static std::vector<NamedAlgorithm> algorithms(const Call& call);

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
    if (c.rng().chance(0.5)) return s;
    s.opset = std::max(s.opset, 14);
    s.node.attributes["training_mode"] = std::int64_t{1};
    if (c.rng().chance(0.5)) s.node.attributes["momentum"] = static_cast<float>(c.rng().pick(kMomenta));
    if (c.rng().chance(0.7)) s.node.outputs = {"y0", "y1", "y2"};
    for (std::size_t k = 3; k < 5; ++k) s.initialiser[k] = false;  // a training step replaces them
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {1, 3, 2}), c = Tensor::zeros(DType::f32, {3}),
                 d = Tensor::zeros(DType::f32, {2});
    Sample outputs = refused_sample(kName, {x, c, c, c, c}, {}, "training mode only");
    outputs.node.outputs = {"y0", "y1"};
    return {refused_sample(kName, {x, c, c, c, c}, {{"training_mode", std::int64_t{2}}}, "training_mode"),
            refused_sample(kName, {x, c, c, c, c}, {{"training_mode", std::int64_t{1}}}, "training_mode", 13),
            outputs,
            refused_sample(kName, {x, d, c, c, c}, {}, "scale"),
            refused_sample(kName, {x, c, c, c, d}, {}, "var"),
            refused_sample(kName, {Tensor::zeros(DType::f32, {3}), c, c, c, c}, {}, "dimensions"),
            refused_sample(kName, {x, c, c, c, c}, {{"epsilon", std::int64_t{1}}}, "epsilon"),
            refused_sample(kName, {Tensor::zeros(DType::bf16, {1, 3, 2}), c, c, c, c}, {}, "bfloat16", 13),
            refused_sample(kName, {x, c, c, c}, {}, "inputs")};
  }

 private:
  static constexpr double kMomenta[] = {0.9, 0.99, 0.5, 0.1};
  // Formulas beside the admissible ones, for the algorithms by name.
  static constexpr int kRunning = 2, kComplement = 3, kUnbiased = 4, kUnbiasedComplement = 5, kOnePass = 6;

  // The elements of channel c, in order.
  struct Channel {
    std::int64_t batch, channels, plane, count;
    explicit Channel(const Shape& x) : batch(x[0]), channels(x[1]), plane(1), count(0) {
      for (std::size_t d = 2; d < x.size(); ++d) plane *= x[d];
      count = batch * plane;
    }
    std::size_t at(std::int64_t c, std::int64_t k) const {
      return static_cast<std::size_t>((k / plane * channels + c) * plane + k % plane);
    }
  };

  template <class T, class Exact>
  static Moments<T> statistics(const Channel& channel, std::int64_t c, std::span<const Exact> x, int formula) {
    const auto element = [&](std::int64_t k) { return x[channel.at(c, k)]; };
    if constexpr (rounds<T>)
      if (formula == kRunning) return running_moments<T>(channel.count, element);
    return formula == kOnePass ? one_pass_moments<T>(channel.count, element)
                               : two_pass_moments<T>(channel.count, element, 0);
  }

  template <class T>
  static void train(Frame<T>& frame) {
    const Call& call = frame.call();
    const int formula = frame.formula();
    const Shape& shape = call.shape(0);
    const Channel channel(shape);
    const auto x = frame.input(0), scale = frame.input(1), shift = frame.input(2), mean = frame.input(3),
               variance = frame.input(4);
    frame.output(0, shape);
    frame.output(1, {shape[1]});
    frame.output(2, {shape[1]});
    const auto y = frame.output(0, shape), running_mean = frame.output(1, {shape[1]}),
               running_variance = frame.output(2, {shape[1]});
    const T epsilon = frame.parameter(call.real("epsilon", static_cast<double>(1e-5f)));
    const double momentum = call.real("momentum", static_cast<double>(0.9f));
    const T rest = frame.parameter(1 - momentum);
    const T keep = formula == kComplement || formula == kUnbiasedComplement ? T(1) - rest : frame.parameter(momentum);
    const T n(static_cast<double>(channel.count));
    const bool interpolates = formula == 1;
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      const auto k = static_cast<std::size_t>(c);
      const Moments<T> batch = statistics<T>(channel, c, x, formula);
      const T reciprocal = T(1) / sqrt(batch.variance + epsilon);
      const T folded = share(T(scale[k]) * reciprocal, 1);
      const T offset = T(shift[k]) - batch.mean * folded;
      for (std::int64_t i = 0; i < channel.count; ++i) {
        const std::size_t at = channel.at(c, i);
        y[at] = formula != 1 ? (T(x[at]) - batch.mean) * reciprocal * T(scale[k]) + T(shift[k])
                             : T(x[at]) * folded + offset;
      }
      T stored = batch.variance;
      if (formula == kUnbiased || formula == kUnbiasedComplement)
        stored = stored * (n / T(static_cast<double>(channel.count - 1)));
      const auto updated = [&](const T& old, const T& fresh) {
        return interpolates ? old + rest * (fresh - old) : old * keep + fresh * rest;
      };
      running_mean[k] = updated(T(mean[k]), batch.mean);
      running_variance[k] = updated(T(variance[k]), stored);
    }
  }

  template <class T>
  static void train_gradient(GradientFrame<T>& frame) {
    const Call& call = frame.call();
    const Shape& shape = call.shape(0);
    const Channel channel(shape);
    const auto x = frame.input(0), scale = frame.input(1);
    const auto dx = frame.wants(0) ? frame.gradient(0) : std::span<T>();
    const auto dscale = frame.wants(1) ? frame.gradient(1) : std::span<T>();
    const auto dshift = frame.wants(2) ? frame.gradient(2) : std::span<T>();
    const T epsilon = frame.parameter(call.real("epsilon", static_cast<double>(1e-5f)));
    const T rest = frame.parameter(1 - call.real("momentum", static_cast<double>(0.9f)));
    const T n(static_cast<double>(channel.count));
    const bool of_output = frame.has_cotangent(0);
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      const auto k = static_cast<std::size_t>(c);
      const Moments<T> batch = statistics<T>(channel, c, x, frame.formula());
      const T reciprocal = share(T(1) / sqrt(batch.variance + epsilon), 1);
      const auto cotangent = [&](std::size_t at) { return of_output ? T(frame.cotangent(0)[at]) : T(0); };
      Sum<T> products, cotangents;
      for (std::int64_t i = 0; i < channel.count; ++i) {
        const std::size_t at = channel.at(c, i);
        const T centred = T(x[at]) - batch.mean;
        products.add(frame.formula() == 0 ? cotangent(at) * (centred * reciprocal) : cotangent(at) * centred);
        cotangents.add(cotangent(at));
      }
      const T all = cotangents.result(), along = products.result();
      if (!dscale.empty()) dscale[k] = frame.formula() == 0 ? along : along * reciprocal;
      if (!dshift.empty()) dshift[k] = all;
      if (dx.empty()) continue;
      const T mean = all / n;
      const T slope = frame.formula() == 0 ? along / n : along * reciprocal * reciprocal / n;
      for (std::int64_t i = 0; i < channel.count; ++i) {
        const std::size_t at = channel.at(c, i);
        const T centred = T(x[at]) - batch.mean;
        const T towards = frame.formula() == 0 ? centred * reciprocal * slope : centred * slope;
        T d = (cotangent(at) - mean - towards) * (reciprocal * T(scale[k]));
        if (frame.has_cotangent(1)) d = d + T(frame.cotangent(1)[k]) * rest / n;
        if (frame.has_cotangent(2)) d = d + T(frame.cotangent(2)[k]) * rest * (T(2) * centred / n);
        dx[at] = d;
      }
    }
  }
};

}  // namespace

const MetaOperator& batch_normalization();

namespace {

std::vector<NamedAlgorithm> BatchNormalization::algorithms(const Call& call) {
  if (!trains(call)) return {};
  const auto formula = [&call](int number) {
    return [&call, number](const Profile& profile) { return enclose(batch_normalization(), call, profile, number); };
  };
  return {{"unbiased running variance", formula(kUnbiased), {}},
          {"unbiased running variance, momentum from its complement", formula(kUnbiasedComplement), {}},
          {"one-pass variance", formula(kOnePass), {}}};
}

}  // namespace

const MetaOperator& batch_normalization() {
  static const MetaOperator op = describe<BatchNormalization>();
  return op;
}

}  // namespace opdiff::operators
