#include <algorithm>

#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Relu {
  static constexpr std::string_view kName = "Relu";
  static constexpr std::string_view kDocumentation = R"(Y = max(X, 0), elementwise

Any shape; signed integers from opset 14. Nothing is rounded. NaN stays NaN; frameworks whose maximum drops NaN return 0 there: a
convention. Minus zero may come out as either zero.)";
  static constexpr TypeSet kTypes = kFloatTypes | kSignedTypes;
  static constexpr bool kIntegers = true;

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) { return x < 0 ? T(0) : T(x); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY where X > 0, else 0. At X = 0 any slope of [0, 1] is a subgradient: 0 is taken, 1 is a convention. "
      "Where X "
      "is NaN the cotangent passes; 0 is a convention.";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_slopes(frame, [](const auto& x, const T& dy) { return x <= 0 ? T(0) : dy; });
  }

  static std::vector<Convention> gradient_conventions(const GradientCall& call) {
    return {other_slopes(call, "slope 1 at the kink", [](double x, double dy) { return x < 0 ? 0 : dy; }),
            other_slopes(call, "slope 0 at NaN", [](double x, double dy) { return x > 0 ? dy : 0; })};
  }

  static std::vector<Convention> conventions(const Call& call) {
    if (!is_float(call.dtype(0))) return {};
    std::vector<double> values = call.tensor(0)->to_doubles();
    for (double& v : values) v = v > 0 ? v : 0;
    return {{"NaN becomes 0", {Tensor::from_doubles(call.dtype(0), call.shape(0), values)}}};
  }

  static Sample sample(SampleContext& c) {
    Sample s = sample_unary(c, kName);
    if (is_integer(c.dtype())) s.opset = std::max(s.opset, 14);
    return s;
  }

  static std::vector<Sample> refused() { return refused_unary(kName, DType::u8); }
};

}  // namespace

const MetaOperator& relu() {
  static const MetaOperator op = describe<Relu>();
  return op;
}

}  // namespace opdiff::operators
