#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Reciprocal {
  static constexpr std::string_view kName = "Reciprocal";
  static constexpr std::string_view kDocumentation = R"(Y = 1 / X, elementwise

Any shape. The quotient, rounded once, infinite at zeros of both signs; kernels that refine an estimate, or raise to the power of -1, may be
off by more: an `approximation`.)";
  static constexpr bool kElementary = true;

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) { return T(1) / T(x); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = -dY Y^2 with Y as a forward pass rounds it, or -dY / X^2: the squares leave the range where the other form "
      "does not.";

  static std::vector<std::string_view> gradient_formulas() {
    return {"-dY (Y Y)", "(-dY Y) Y", "-dY / (X X)", "(-dY / X) / X"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_slopes(frame, [&](const auto& exact, const T& dy) {
      const T x(exact);
      if (frame.formula() == 2) return -dy / (x * x);
      if (frame.formula() == 3) return -dy / x / x;
      const T y = T(1) / x;
      return frame.formula() == 0 ? -dy * (y * y) : -dy * y * y;
    });
  }

  static Sample sample(SampleContext& c) { return sample_unary(c, kName); }
  static std::vector<Sample> refused() { return refused_unary(kName); }
};

}  // namespace

const MetaOperator& reciprocal() {
  static const MetaOperator op = describe<Reciprocal>();
  return op;
}

}  // namespace opdiff::operators
