#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Sqrt {
  static constexpr std::string_view kName = "Sqrt";
  static constexpr std::string_view kDocumentation = R"(Y = sqrt(X), elementwise

Any shape. Rounded once, as IEEE 754 asks; kernels that refine an estimate of the reciprocal root may be off by more: an `approximation`.
NaN below 0; minus zero gives either zero.)";
  static constexpr bool kElementary = true;

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) { return opdiff::sqrt(T(x)); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY / (2 Y) with Y as a forward pass rounds it. At X = 0 it is infinite, or NaN with a cotangent of 0.";

  static std::vector<std::string_view> gradient_formulas() { return {"dY / (2 Y)", "dY (0.5 / Y)"}; }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    // Half of the cotangent is exact unless it is subnormal; so is twice the root.
    map_slopes(frame, [&](const auto& x, const T& dy) {
      const T y = opdiff::sqrt(T(x));
      return frame.formula() == 0 ? dy * T(0.5) / y : dy * (T(0.5) / y);
    });
  }

  static Sample sample(SampleContext& c) { return sample_mostly_positive(c, kName); }
  static std::vector<Sample> refused() { return refused_unary(kName); }
};

}  // namespace

const MetaOperator& sqrt() {
  static const MetaOperator op = describe<Sqrt>();
  return op;
}

}  // namespace opdiff::operators
