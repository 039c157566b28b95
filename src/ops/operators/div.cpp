#include <limits>

#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Div {
  static constexpr std::string_view kName = "Div";
  static constexpr std::string_view kDocumentation =
      R"(C = A / B, elementwise, over shapes that broadcast (numpy's rule)

Floats: the quotient, rounded once, infinite or NaN over zero as IEEE 754 says. Integers: truncated toward zero; the specification
leaves division by zero and INT_MIN / -1 open (hardware traps or wraps), so they are counted and not judged. 8 and 16 bits exist from
opset 14. Frameworks that multiply by a rounded reciprocal are off by up to 1.5 ulp: wrong for a division.)";
  static constexpr Arity kInputs{2, 2};
  static constexpr TypeSet kTypes = kNumericTypes;
  static constexpr bool kIntegers = true;

  static Expected<Types> infer(const Call& call) { return infer_binary(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_pairs(frame, [](T a, T b) {
      if constexpr (std::is_integral_v<T>) {
        if (b == 0) return T(0);
        // The quotient of the least integer and -1 wraps; C++ leaves it open.
        if constexpr (std::is_signed_v<T>)
          if (b == -1) return static_cast<T>(-static_cast<std::uint64_t>(a));
      }
      return static_cast<T>(a / b);
    });
  }

  static std::vector<bool> unspecified(const Call& call, int) {
    if (!is_integer(call.dtype(0))) return {};
    const Shape shape = *broadcast_shapes(call.shape(0), call.shape(1));
    const std::vector<std::int64_t> a = call.tensor(0)->to_int64s(), b = call.tensor(1)->to_int64s();
    const std::int64_t least = std::numeric_limits<std::int64_t>::min() >> (64 - 8 * dtype_size(call.dtype(0)));
    std::vector<bool> open(static_cast<std::size_t>(element_count(shape)));
    for_each_pair(call.shape(0), call.shape(1), shape, [&](std::size_t i, std::size_t ia, std::size_t ib) {
      open[i] = b[ib] == 0 || (is_signed_integer(call.dtype(0)) && b[ib] == -1 && a[ia] == least);
    });
    return open;
  }

  static constexpr std::string_view kGradientDocumentation =
      "dA = dY / B, dB = -dY A / B^2, summed where an operand was broadcast. The square is divided by at once or in "
      "two "
      "steps: each overflows where the other does not.";

  static std::vector<std::string_view> gradient_formulas() { return {"divided by B twice", "divided by B B"}; }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    map_pair_slopes(
        frame, [](const T&, const T& b, const T& dy) { return dy / b; },
        [&](const T& a, const T& b, const T& dy) {
          return frame.formula() == 0 ? -dy * ((a / b) / b) : -dy * a / (b * b);
        });
  }

  static Sample sample(SampleContext& c) {
    Sample s = sample_binary(c, kName);
    if (!is_integer(c.dtype())) return s;
    // Hardware traps on a zero divisor: a worker would die of what nobody defines.
    Tensor& divisor = *s.inputs[1];
    std::vector<std::int64_t> values = divisor.to_int64s();
    for (std::int64_t& v : values)
      if (v == 0) v = 3;
    divisor = Tensor::from_int64s(c.dtype(), divisor.shape(), values);
    return s;
  }

  static std::vector<Sample> refused() { return refused_binary(kName); }
};

}  // namespace

const MetaOperator& div() {
  static const MetaOperator op = describe<Div>();
  return op;
}

}  // namespace opdiff::operators
