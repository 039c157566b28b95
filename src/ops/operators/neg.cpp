#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Neg {
  static constexpr std::string_view kName = "Neg";
  static constexpr std::string_view kDocumentation = R"(Y = -X, elementwise

Any shape. Nothing is rounded. Signed integers wrap around: the least one stays what it is.)";
  static constexpr TypeSet kTypes = kFloatTypes | kSignedTypes;
  static constexpr bool kIntegers = true;

  static Expected<Types> infer(const Call& call) { return infer_same(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_elements(frame, [](auto x) {
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(-static_cast<std::uint64_t>(x));
      else
        return -T(x);
    });
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_slopes(frame, [](const auto&, const T& dy) { return -dy; });
  }

  static Sample sample(SampleContext& c) { return sample_unary(c, kName); }
  static std::vector<Sample> refused() { return refused_unary(kName, DType::u8); }
};

}  // namespace

const MetaOperator& neg() {
  static const MetaOperator op = describe<Neg>();
  return op;
}

}  // namespace opdiff::operators
