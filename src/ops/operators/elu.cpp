#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Elu {
  static constexpr std::string_view kName = "Elu";
  static constexpr std::string_view kDocumentation = R"(Y = X where X >= 0, alpha (exp(X) - 1) elsewhere

Any shape. exp(X) - 1 has a relative accuracy of its own near 0 (expm1). Frameworks that subtract 1 from the rounded exponential, as
the specification's text reads, lose it: they are coarser by about u alpha everywhere, an `approximation` with the measured floor.)";
  static constexpr bool kElementary = true;
  static constexpr double kApproximationFloor = 1.25;
  static constexpr std::string_view kApproximationSource = "onnxruntime 1.23.2: 1.13 u, bench/measure_floors.py";

  static std::vector<AttributeSpec> attributes() {
    return {{"alpha", AttributeKind::real, "minus the limit at minus infinity; default 1"}};
  }

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  // The floor is that of the half-line below 0, where |f| < |alpha|.
  static double approximation_scale(const Call& call) { return std::fabs(call.real("alpha", 1)); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const T alpha = frame.parameter(frame.call().real("alpha", 1));
    map_elements(frame, [&](auto x) { return x < 0 ? alpha * expm1(T(x)) : T(x); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY where X > 0, else dY alpha exp(X). At X = 0 any slope between alpha and 1 is a subgradient: alpha is "
      "taken, "
      "1 is a convention; so is slope 1 at NaN. Frameworks that work from a stored Y compute Y + alpha, which cancels "
      "for very negative X.";

  static std::vector<std::string_view> gradient_formulas() {
    return {"dY (alpha exp(X))", "(dY alpha) exp(X)", "dY (Y + alpha)"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const T alpha = frame.parameter(frame.call().real("alpha", 1));
    map_slopes(frame, [&](const auto& x, const T& dy) {
      if (x > 0) return dy;
      if (frame.formula() == 1) return dy * alpha * exp(T(x));
      return dy * (frame.formula() == 0 ? alpha * exp(T(x)) : alpha * expm1(T(x)) + alpha);
    });
  }

  static std::vector<Convention> gradient_conventions(const GradientCall& call) {
    const double alpha = call.forward().real("alpha", 1);
    return {other_slopes(call, "slope 1 at the kink or at NaN",
                         [&](double x, double dy) { return x < 0 ? dy * alpha * std::exp(x) : dy; })};
  }

  static Sample sample(SampleContext& c) {
    Sample s = sample_unary(c, kName);
    if (c.rng().chance(0.6)) s.node.attributes["alpha"] = static_cast<float>(c.rng().uniform(0.1, 3));
    if (c.dtype() == DType::bf16) s.opset = std::max(s.opset, 22);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2});
    return {refused_sample(kName, {x}, {{"alpha", std::int64_t{1}}}, "alpha"),
            refused_sample(kName, {x}, {{"beta", 1.0f}}, "beta"),
            refused_sample(kName, {Tensor::zeros(DType::i32, {2})}, {}, "type")};
  }
};

}  // namespace

const MetaOperator& elu() {
  static const MetaOperator op = describe<Elu>();
  return op;
}

}  // namespace opdiff::operators
