#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Sigmoid {
  static constexpr std::string_view kName = "Sigmoid";
  static constexpr std::string_view kDocumentation = R"(Y = 1 / (1 + exp(-X)), elementwise

Any shape; the whole line. For very negative X the first form overflows on the way and gives 0 where exp(X), possibly subnormal, is
right; exp(X) / (1 + exp(X)) keeps those digits: both are admissible. Frameworks that use a rational function or tanh (X / 2) lose the
relative accuracy of the tail: 1.49e-7 for 2.76e-8 at -17.4 in onnxruntime, an `approximation` with the measured absolute floor.)";
  static constexpr bool kElementary = true;
  static constexpr double kApproximationFloor = 2.5;
  static constexpr std::string_view kApproximationSource = "onnxruntime 1.23.2: 2.43 u, bench/measure_floors.py";

  static std::vector<std::string_view> formulas() { return {"1 / (1 + exp(-x))", "exp(x) / (1 + exp(x)) below 0"}; }

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [&](auto x) {
      if (frame.formula() == 1 && x < 0) {
        const T e = exp(T(x));
        return e / (T(1) + e);
      }
      return T(1) / (T(1) + exp(-T(x)));
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY Y (1 - Y) with Y as a forward pass rounds it: 1 - Y keeps few digits where Y is near 1, and frameworks "
      "that store Y have no more. Below -88 (f32) a Y that vanished makes the gradient vanish.";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_slopes(frame, [](const auto& x, const T& dy) {
      const T y = T(1) / (T(1) + exp(-T(x)));
      return dy * (y * (T(1) - y));
    });
  }

  static Sample sample(SampleContext& c) { return sample_unary(c, kName); }
  static std::vector<Sample> refused() { return refused_unary(kName); }
};

}  // namespace

const MetaOperator& sigmoid() {
  static const MetaOperator op = describe<Sigmoid>();
  return op;
}

}  // namespace opdiff::operators
