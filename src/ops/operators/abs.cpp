#include <limits>

#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Abs {
  static constexpr std::string_view kName = "Abs";
  static constexpr std::string_view kDocumentation = R"(Y = |X|, elementwise

Any shape. Nothing is rounded. Signed integers wrap around: the least one stays what it is.)";
  static constexpr TypeSet kTypes = kNumericTypes;
  static constexpr bool kIntegers = true;

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) {
      if constexpr (std::is_integral_v<T>)
        return x < 0 ? static_cast<T>(-static_cast<std::uint64_t>(x)) : x;
      else
        return x < 0 ? -T(x) : T(x);
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY where X > 0, -dY where X < 0, else 0: the sign of 0 is 0. At X = 0 any slope of [-1, 1] is a "
      "subgradient: "
      "1 and -1 are conventions. Where X is NaN so are the cotangent as it is, and NaN.";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_slopes(frame, [](const auto& x, const T& dy) { return x > 0 ? dy : x < 0 ? -dy : T(0); });
  }

  static std::vector<Convention> gradient_conventions(const GradientCall& call) {
    std::vector<Convention> list;
    for (const double kink : {0.0, 1.0, -1.0})
      for (const double nan : {0.0, 1.0, std::numeric_limits<double>::quiet_NaN()})
        list.push_back(
            other_slopes(call, fmt::format("slope {:g} at the kink, {:g} at NaN", kink, nan), [&](double x, double dy) {
              return dy * (x > 0 ? 1 : x < 0 ? -1 : x == 0 ? kink : nan);
            }));
    return list;
  }

  static Sample sample(SampleContext& c) { return sample_unary(c, kName); }
  static std::vector<Sample> refused() { return refused_unary(kName, DType::boolean); }
};

}  // namespace

const MetaOperator& abs() {
  static const MetaOperator op = describe<Abs>();
  return op;
}

}  // namespace opdiff::operators
