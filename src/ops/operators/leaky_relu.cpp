#include <algorithm>

#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct LeakyRelu {
  static constexpr std::string_view kName = "LeakyRelu";
  static constexpr std::string_view kDocumentation = R"(Y = X where X >= 0, alpha X elsewhere

Any shape. One rounding of the product; alpha is an f32 and may be rounded to a narrower storage type first. NaN stays NaN. alpha may
be negative or above 1: max(X, alpha X), which some frameworks compute, is another function there.)";

  static std::vector<AttributeSpec> attributes() {
    return {{"alpha", AttributeKind::real, "slope below 0; default 0.01"}};
  }

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const T alpha = frame.parameter(frame.call().real("alpha", 0.01));
    map_elements(frame, [&](auto x) { return x < 0 ? alpha * T(x) : T(x); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY where X > 0, else alpha dY. At X = 0 any slope between alpha and 1 is a subgradient: alpha is taken, 1 "
      "is "
      "a convention; so is slope 1 at NaN.";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const T alpha = frame.parameter(frame.call().real("alpha", 0.01));
    map_slopes(frame, [&](const auto& x, const T& dy) { return x > 0 ? dy : alpha * dy; });
  }

  static std::vector<Convention> gradient_conventions(const GradientCall& call) {
    const double alpha = call.forward().real("alpha", 0.01);
    return {other_slopes(call, "slope 1 at the kink or at NaN",
                         [&](double x, double dy) { return x < 0 ? alpha * dy : dy; })};
  }

  static Sample sample(SampleContext& c) {
    Sample s = sample_unary(c, kName);
    if (c.rng().chance(0.7)) s.node.attributes["alpha"] = static_cast<float>(c.rng().uniform(-0.5, 1.5));
    if (c.dtype() == DType::bf16) s.opset = std::max(s.opset, 16);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2});
    return {refused_sample(kName, {x}, {{"alpha", std::int64_t{1}}}, "alpha"),
            refused_sample(kName, {x}, {{"slope", 1.0f}}, "slope"),
            refused_sample(kName, {Tensor::zeros(DType::i32, {2})}, {}, "type")};
  }
};

}  // namespace

const MetaOperator& leaky_relu() {
  static const MetaOperator op = describe<LeakyRelu>();
  return op;
}

}  // namespace opdiff::operators
