#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Exp {
  static constexpr std::string_view kName = "Exp";
  static constexpr std::string_view kDocumentation = R"(Y = exp(X), elementwise

Any shape; the whole line. Beyond the range the result is infinite; where it is subnormal, kernels may give 0: flush-to-zero.)";
  static constexpr bool kElementary = true;
  static constexpr double kApproximationFloor = 0x1p-101;  // 2^-125 in units of u
  static constexpr std::string_view kApproximationSource =
      "onednn 3.2.0's exp returns 0 below 2^-125, measured by `opdiff check Exp --backend onednn --only 915`";

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) { return opdiff::exp(T(x)); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY Y with Y as a forward pass rounds it: where Y overflowed the gradient is infinite, or NaN with a "
      "cotangent of 0.";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_slopes(frame, [](const auto& x, const T& dy) { return dy * opdiff::exp(T(x)); });
  }

  static Sample sample(SampleContext& c) { return sample_unary(c, kName); }
  static std::vector<Sample> refused() { return refused_unary(kName); }
};

}  // namespace

const MetaOperator& exp() {
  static const MetaOperator op = describe<Exp>();
  return op;
}

}  // namespace opdiff::operators
