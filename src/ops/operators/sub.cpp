#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Sub {
  static constexpr std::string_view kName = "Sub";
  static constexpr std::string_view kDocumentation =
      R"(C = A - B, elementwise, over shapes that broadcast (numpy's rule)

Floats: the difference, rounded once. Integers wrap around modulo 2^bits; 8 and 16 bits exist from opset 14.)";
  static constexpr Arity kInputs{2, 2};
  static constexpr TypeSet kTypes = kNumericTypes;
  static constexpr bool kIntegers = true;

  static Expected<Types> infer(const Call& call) { return infer_binary(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_pairs(frame, [](T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x - y; }); });
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_pair_slopes(
        frame, [](const T&, const T&, const T& dy) { return dy; }, [](const T&, const T&, const T& dy) { return -dy; });
  }

  static Reduction gradient_reduction(const GradientCall& call, int k, std::int64_t index) {
    return pair_slope_reduction(call, k, index, [&](double, double, double dy) { return k == 0 ? dy : -dy; });
  }

  static Sample sample(SampleContext& c) { return sample_binary(c, kName); }
  static std::vector<Sample> refused() { return refused_binary(kName); }
};

}  // namespace

const MetaOperator& sub() {
  static const MetaOperator op = describe<Sub>();
  return op;
}

}  // namespace opdiff::operators
