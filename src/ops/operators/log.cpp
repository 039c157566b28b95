#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Log {
  static constexpr std::string_view kName = "Log";
  static constexpr std::string_view kDocumentation = R"(Y = log(X), the natural logarithm, elementwise

Any shape. -infinity at zeros of both signs, NaN below. Near 1 the result keeps its relative accuracy; kernels that look logarithms up in a
table lose it there: an `approximation` with the measured absolute floor.)";
  static constexpr bool kElementary = true;
  static constexpr double kApproximationFloor = 60;
  static constexpr std::string_view kApproximationSource = "oneDNN 3.2.0: 59.4 u, bench/measure_onednn_log.py";

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) { return opdiff::log(T(x)); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY / X, for every X: where X <= 0 it is the quotient that IEEE 754 gives, too.";

  static std::vector<std::string_view> gradient_formulas() { return {"dY / X", "dY (1 / X)"}; }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_slopes(frame,
               [&](const auto& x, const T& dy) { return frame.formula() == 0 ? dy / T(x) : dy * (T(1) / T(x)); });
  }

  static Sample sample(SampleContext& c) { return sample_mostly_positive(c, kName); }
  static std::vector<Sample> refused() { return refused_unary(kName); }
};

}  // namespace

const MetaOperator& log() {
  static const MetaOperator op = describe<Log>();
  return op;
}

}  // namespace opdiff::operators
