#include <algorithm>
#include <cmath>
#include <type_traits>

#include "numerics/power.h"
#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Pow {
  static constexpr std::string_view kName = "Pow";
  static constexpr std::string_view kDocumentation =
      R"(Z = X^Y, elementwise, over shapes that broadcast (numpy's rule)

Floating types, Y of X's (ONNX has integers and mixed types from opset 12, which are refused here). Corners as C's pow has them: X^0 and 1^Y are
1 even of NaN, a negative X has whole powers only, else NaN. Frameworks multiply where Y is 2 or 3.)";
  static constexpr Arity kInputs{2, 2};
  static constexpr bool kElementary = true;

  static Expected<Types> infer(const Call& call) {
    if (call.dtype(0) == DType::bf16 && call.opset() < 15)
      return make_error("Y has type bfloat16, which the operator takes from opset 15 on (opset {})", call.opset());
    return infer_binary(call);
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    map_pairs(frame, [](const T& x, const T& y) { return power(x, y); });
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dX = dZ Y X^(Y - 1), dY = dZ Z log X, summed where an operand was broadcast. Where Y is 0 dX is 0, and where X is 0 and Y is not below 0
dY is 0, whatever the other factors are (here, torch). Below 0 the exponent has no slope: NaN, or 0 by convention (TensorFlow). An implementation
rounds Y - 1, maybe to a whole number, of which a power of a negative X exists where that of Y - 1 does not.)";

  static std::vector<std::string_view> gradient_formulas() {
    return {"dZ (Y X^(Y - 1)), dZ (Z log X)", "(dZ Y) X^(Y - 1), (dZ Z) log X", "dZ (Y X^round(Y - 1)), dZ (Z log X)",
            "(dZ Y) X^round(Y - 1), (dZ Z) log X"};
  }
  static std::vector<std::string_view> gradient_convention_formulas() {
    return {"the exponent's slope is 0 where X is not above 0"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const int formula = frame.formula();
    const bool from_left = formula == 1 || formula == 3, rounds = formula == 2 || formula == 3;
    const bool is_convention = formula == 4;
    map_pair_slopes(
        frame,
        [=](const T& x, const T& y, const T& dz) {
          if (is_zero(y)) return slope_at_zero(x, y, dz);
          const T rest = power(x, rounds ? rounded(y - T(1)) : y - T(1));
          return from_left ? dz * y * rest : dz * (y * rest);
        },
        [=](const T& x, const T& y, const T& dz) {
          if (is_zero(x) && (y > T(0) || is_zero(y))) return T(0);
          const T z = power(x, y);
          const T slope = is_convention && !(x > T(0)) ? T(0) : opdiff::log(x);
          return from_left ? dz * z * slope : dz * (z * slope);
        });
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    Sample s = sample_binary(c, kName);
    std::vector<double> x = s.inputs[0]->to_doubles(), y = s.inputs[1]->to_doubles();
    const int kind = static_cast<int>(rng.integer(0, 9));
    // Negative bases have whole powers only: mostly there are none of them, or whole exponents.
    if (kind < 6)
      for (double& v : x) v = std::fabs(v);
    if (kind >= 5 && kind < 9)
      for (double& v : y) v = kind < 7 ? static_cast<double>(rng.integer(-3, 3)) : std::round(v);
    s.inputs[0] = Tensor::from_doubles(c.dtype(), s.inputs[0]->shape(), x);
    s.inputs[1] = Tensor::from_doubles(c.dtype(), s.inputs[1]->shape(), y);
    if (c.dtype() == DType::bf16) s.opset = std::max(s.opset, 15);
    return s;
  }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = refused_binary(kName);
    const Tensor i = Tensor::zeros(DType::i32, {2}), b = Tensor::zeros(DType::bf16, {2});
    samples.push_back(refused_sample(kName, {i, i}, {}, "type"));
    samples.push_back(refused_sample(kName, {b, b}, {}, "opset 15", 14));
    return samples;
  }

 private:
  template <class T>
  static bool is_zero(const T& x) {
    if constexpr (requires { x.v; })
      return x.v == 0;
    else
      return x == 0;
  }

  // The one number that an implementation has of x.
  template <class T>
  static T rounded(const T& x) {
    if constexpr (requires { x.exact(); })
      return T(round_to(x.value(), arithmetic().inner));
    else
      return x;
  }

  // The slope of X^0, zero; how it changes with Y is what second derivatives are made of.
  template <class T>
  static T slope_at_zero(const T& x, const T& y, const T& dz) {
    if constexpr (std::is_same_v<T, Dual>)
      return dz * (y / x);
    else
      return T(0);
  }
};

}  // namespace

const MetaOperator& pow() {
  static const MetaOperator op = describe<Pow>();
  return op;
}

}  // namespace opdiff::operators
