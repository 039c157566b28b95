#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Tanh {
  static constexpr std::string_view kName = "Tanh";
  static constexpr std::string_view kDocumentation = R"(Y = tanh(X), elementwise

Any shape; the whole line. Small arguments keep their relative accuracy: (exp(2X) - 1) / (exp(2X) + 1), which cancels there, is not
admissible. onnxruntime 1.23.2 is within 5.2 ulp in f32 and 8.6 ulp in f64 (bench/measure_floors.py), except around the smallest
normal number, where it is off by up to 64 subnormal steps: no absolute floor.)";
  static constexpr bool kElementary = true;

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) { return opdiff::tanh(T(x)); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY (1 - Y^2) with Y as a forward pass rounds it: where Y is near 1 few digits are left, in every framework "
      "that stores Y.";

  static std::vector<std::string_view> gradient_formulas() { return {"1 - Y Y", "(1 - Y) (1 + Y)"}; }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_slopes(frame, [&](const auto& x, const T& dy) {
      const T y = tanh(T(x));
      return dy * (frame.formula() == 0 ? T(1) - y * y : (T(1) - y) * (T(1) + y));
    });
  }

  static Sample sample(SampleContext& c) { return sample_unary(c, kName); }
  static std::vector<Sample> refused() { return refused_unary(kName); }
};

}  // namespace

const MetaOperator& tanh() {
  static const MetaOperator op = describe<Tanh>();
  return op;
}

}  // namespace opdiff::operators
