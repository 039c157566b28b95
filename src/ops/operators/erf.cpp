#include <algorithm>

#include "ops/elementwise.h"
#include "ops/rounded_scalar.h"

namespace opdiff::operators {
namespace {

struct Erf {
  static constexpr std::string_view kName = "Erf";
  static constexpr std::string_view kDocumentation = R"(Y = 2 / sqrt(pi) integral of exp(-t^2) from 0 to X, elementwise

From opset 9; any shape; floating types (opsets 9 to 12 list integers as well and do not say how the result becomes one). Small arguments keep their
relative accuracy; kernels that take it from 1 - erfc lose it: an `approximation` with the measured absolute floor.)";
  static constexpr bool kElementary = true;
  static constexpr double kApproximationFloor = 6;
  static constexpr std::string_view kApproximationSource =
      "torch 2.13.0 in bfloat16: 4.7 u, bench/measure_torch_erf.py";

  static Expected<Types> infer(const Call& call) {
    if (call.opset() < 9) return make_error("the operator exists from opset 9 on (opset {})", call.opset());
    return infer_same(call);
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) { return opdiff::erf(T(x)); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY (2 / sqrt(pi)) exp(-X^2): in the tail the rounded square costs digits.";

  static std::vector<std::string_view> gradient_formulas() {
    return {"((2 / sqrt(pi)) exp(-X^2)) dY", "((2 / sqrt(pi)) dY) exp(-X^2)", "(dY exp(-X^2)) (2 / sqrt(pi))"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    static const Quad kSlope = 2 / math::sqrt(M_PIq);
    const T slope = scalar_of<T>(kSlope);
    map_slopes(frame, [&](const auto& x, const T& dy) {
      const T tail = opdiff::exp(-(T(x) * T(x)));
      if (frame.formula() == 0) return slope * tail * dy;
      return frame.formula() == 1 ? slope * dy * tail : dy * tail * slope;
    });
  }

  static Sample sample(SampleContext& c) {
    Sample s = sample_unary(c, kName);
    s.opset = std::max(s.opset, 9);
    return s;
  }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = refused_unary(kName);
    samples.push_back(refused_sample(kName, {Tensor::zeros(DType::f32, {2})}, {}, "opset 9", 8));
    return samples;
  }
};

}  // namespace

const MetaOperator& erf() {
  static const MetaOperator op = describe<Erf>();
  return op;
}

}  // namespace opdiff::operators
