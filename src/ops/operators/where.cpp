#include <algorithm>

#include "ops/gather.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Where {
  static constexpr std::string_view kName = "Where";
  static constexpr std::string_view kDocumentation =
      R"(Y = X where `condition` is true, else Y, elementwise, over three shapes that broadcast (numpy's rule)

From opset 9; bfloat16 from 16. Elements are copied bit for bit, NaN included.)";
  static constexpr Arity kInputs{3, 3};
  static constexpr TypeSet kTypes = kAllTypes;
  static constexpr int kLeading = 1;

  static Expected<Types> infer(const Call& call) {
    const DType dtype = call.dtype(1);
    if (call.opset() < 9) return make_error("the operator exists from opset 9 on (opset {})", call.opset());
    if (dtype == DType::bf16 && call.opset() < 16)
      return make_error("X has type bfloat16, which the operator takes from opset 16 on (opset {})", call.opset());
    if (call.dtype(0) != DType::boolean)
      return make_error("the condition has type {}, expected bool", dtype_name(call.dtype(0)));
    if (call.dtype(2) != dtype)
      return make_error("Y has type {}, X has {}", dtype_name(call.dtype(2)), dtype_name(dtype));
    OPDIFF_TRY(const Shape both, broadcast_shapes(call.shape(1), call.shape(2)));
    OPDIFF_TRY(const Shape shape, broadcast_shapes(call.shape(0), both));
    return Types{{dtype, shape}};
  }

  static DType output_dtype(const Call& call, int) { return call.dtype(1); }

  static Movement movement(const Call& call) {
    Movement m;
    m.shape = *infer(call)->front().shape;
    const auto places = [&](int k) { return gather(m.shape, broadcast_strides(call.shape(k), m.shape), 0); };
    const std::vector<std::int64_t> condition = places(0), x = places(1), y = places(2);
    for (std::size_t i = 0; i < condition.size(); ++i) {
      const bool is_x = call.tensor(0)->int_at(condition[i]) != 0;
      m.which.push_back(is_x ? 1 : 2);
      m.source.push_back(is_x ? x[i] : y[i]);
    }
    return m;
  }

  static std::vector<int> differentiable() { return {1, 2}; }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const Shape shape = c.shape_or_empty(0, 5, 8);
    std::vector<std::optional<Tensor>> inputs;
    for (int k = 0; k < 3; ++k) {
      Shape own = shape;
      if (rng.chance(0.5)) {
        for (auto& dimension : own)
          if (rng.chance(0.3)) dimension = 1;
        if (rng.chance(0.3)) own.erase(own.begin(), own.begin() + rng.integer(0, std::ssize(own)));
      }
      inputs.push_back(k == 0 ? c.tensor(DType::boolean, own) : c.elements(own));
    }
    Sample s = c.make(kName, std::move(inputs));
    s.opset = std::max(s.opset, c.dtype() == DType::bf16 ? 16 : 9);
    for (std::size_t k = 0; k < 3; ++k) s.initialiser[k] = rng.chance(0.2);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor c = Tensor::zeros(DType::boolean, {2, 3}), x = Tensor::zeros(DType::f32, {2, 3});
    const Tensor b = Tensor::zeros(DType::bf16, {2, 3});
    return {refused_sample(kName, {c, x, Tensor::zeros(DType::f32, {2})}, {}, "broadcast"),
            refused_sample(kName, {c, x, Tensor::zeros(DType::f64, {2, 3})}, {}, "type"),
            refused_sample(kName, {x, x, x}, {}, "bool"),
            refused_sample(kName, {c, x}, {}, "inputs"),
            refused_sample(kName, {c, x, x}, {{"axis", std::int64_t{1}}}, "axis"),
            refused_sample(kName, {c, x, x}, {}, "opset 9", 8),
            refused_sample(kName, {c, b, b}, {}, "bfloat16", 15)};
  }
};

}  // namespace

const MetaOperator& where() {
  static const MetaOperator op = describe<Where>();
  return op;
}

}  // namespace opdiff::operators
