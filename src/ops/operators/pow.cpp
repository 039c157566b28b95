#include <algorithm>
#include <cmath>

#include "numerics/power.h"
#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Pow {
  static constexpr std::string_view kName = "Pow";
  static constexpr std::string_view kDocumentation =
      R"(Z = X^Y, elementwise, over shapes that broadcast (numpy's rule)

Floating types, Y of X's (ONNX has integers and mixed types from opset 12, which are refused here). Corners as C's pow has them: X^0 and 1^Y are
1 even of NaN, a negative X has whole powers only, else NaN. Frameworks multiply where Y is 2 or 3. There is no gradient here yet.)";
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

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    Sample s = sample_binary(c, kName);
    std::vector<double> x = s.inputs[0]->to_doubles(), y = s.inputs[1]->to_doubles();
    const int kind = static_cast<int>(rng.integer(0, 9));
    // Negative bases have whole powers only: mostly there are none of them, or whole exponents.
    if (kind < 5)
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
};

}  // namespace

const MetaOperator& pow() {
  static const MetaOperator op = describe<Pow>();
  return op;
}

}  // namespace opdiff::operators
