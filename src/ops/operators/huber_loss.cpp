#include <cmath>

#include "ops/loss.h"

namespace opdiff::operators {
namespace {

struct HuberLoss {
  static constexpr std::string_view kName = "HuberLoss";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr std::string_view kDocumentation =
      R"(Y = d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) beyond, with d = X - target; reduced

X and target of one shape. Value and slope are continuous at |d| = delta, so it does not matter on which side an implementation's
rounded d falls: the two branches differ by (|d| - delta)^2 / 2 there. The mean of no elements is undefined (0 / 0). Source:
torch.nn.HuberLoss; smooth L1 is this divided by delta: another function.)";
  static constexpr Arity kInputs{2, 2};

  static std::vector<AttributeSpec> attributes() {
    return {{"delta", AttributeKind::real, "where the square ends, above 0; default 1"}, reduction_attribute()};
  }
  static std::vector<std::string_view> formulas() {
    return {"sum divided by the count", "sum times the reciprocal of the count"};
  }

  static Expected<Types> infer(const Call& call) {
    if (const double delta = call.real("delta", 1); !(delta > 0) || !std::isfinite(delta))
      return make_error("attribute 'delta' is {}, expected a number above 0", delta);
    return infer_elementwise_loss(call);
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const auto x = frame.input(0), target = frame.input(1);
    const double delta = frame.call().real("delta", 1);
    const T bound = frame.parameter(delta);
    reduce_losses(frame, static_cast<std::int64_t>(x.size()), [&](std::size_t i) {
      const bool below = x[i] < target[i];
      const T d = below ? T(target[i]) - T(x[i]) : T(x[i]) - T(target[i]);
      if (is_beyond(x[i], target[i], delta)) return bound * (d - T(0.5) * bound);
      return T(0.5) * d * d;
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = min(max(X - target, -delta), delta) dY, dtarget = -dX, with dY divided by the count for the mean.";

  static std::vector<std::string_view> gradient_formulas() { return difference_slope_formulas(); }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const auto x = frame.input(0), target = frame.input(1);
    const double delta = frame.call().real("delta", 1);
    const T bound = frame.parameter(delta);
    difference_slopes(frame, [&](std::size_t i, const T& cotangent) {
      if (!is_beyond(x[i], target[i], delta)) return (T(x[i]) - T(target[i])) * cotangent;
      return (x[i] < target[i] ? -bound : bound) * cotangent;
    });
  }

  static Sample sample(SampleContext& c) {
    Sample s = sample_elementwise_loss(c, kName);
    if (c.rng().chance(0.7))
      s.node.attributes["delta"] = static_cast<float>(std::pow(10.0, c.rng().uniform(-1.5, 1.5)));
    return s;
  }
  static std::vector<Sample> refused() {
    std::vector<Sample> samples = refused_elementwise_loss(kName);
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    samples.push_back(training_sample(refused_sample(kName, {x, x}, {{"delta", 0.0f}}, "delta")));
    return samples;
  }

 private:
  template <class Exact>
  static bool is_beyond(const Exact& x, const Exact& target, double delta) {
    const Exact d = x - target;
    return d > Exact(delta) || d < Exact(-delta);
  }
};

}  // namespace

const MetaOperator& huber_loss() {
  static const MetaOperator op = describe<HuberLoss>();
  return op;
}

}  // namespace opdiff::operators
