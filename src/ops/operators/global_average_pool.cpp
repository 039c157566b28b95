#include "numerics/parallel.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct GlobalAveragePool {
  static constexpr std::string_view kName = "GlobalAveragePool";
  static constexpr std::string_view kDocumentation =
      R"(Y[n, c, 1, ...] = (sum of X[n, c, ...]) / count, over all spatial positions

X [N, C, spatial...]; every spatial extent of Y is 1. No spatial positions: 0 / 0, unspecified. Frameworks divide by the count or multiply by its
reciprocal, and differ in the order of summation.)";

  static std::vector<std::string_view> formulas() {
    return {"sum divided by the count", "sum times the reciprocal of the count"};
  }

  static Shape output_shape(const Call& call) {
    Shape shape = call.shape(0);
    std::fill(shape.begin() + 2, shape.end(), 1);
    return shape;
  }
  static std::int64_t plane(const Call& call) {
    std::int64_t size = 1;
    for (std::size_t d = 2; d < call.shape(0).size(); ++d) size *= call.shape(0)[d];
    return size;
  }

  static Expected<Types> infer(const Call& call) {
    if (call.rank(0) < 3) return make_error("X has shape {}, expected at least 3 dimensions", to_string(call.shape(0)));
    if (call.dtype(0) == DType::bf16 && call.opset() < 22)
      return make_error("X has type bfloat16, which the operator takes from opset 22 on (opset {})", call.opset());
    return Types{{call.dtype(0), output_shape(call)}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const std::int64_t count = plane(call);
    const auto x = frame.input(0);
    const auto y = frame.output(0, output_shape(call));
    parallel_for(static_cast<std::int64_t>(y.size()), [&](std::int64_t p) {
      Sum<T> sum;
      for (std::int64_t i = 0; i < count; ++i) sum.add(T(x[static_cast<std::size_t>(p * count + i)]));
      const T total = sum.result(), divisor(static_cast<double>(count));
      y[static_cast<std::size_t>(p)] = frame.formula() == 0 ? total / divisor : total * (T(1) / divisor);
    });
  }

  static std::vector<std::string_view> gradient_formulas() {
    return {"divided by the count", "times the reciprocal of the count"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const std::int64_t count = plane(frame.call());
    const T divisor(static_cast<double>(count));
    const auto dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const T cotangent(dy[i / static_cast<std::size_t>(count)]);
      dx[i] = frame.formula() == 0 ? cotangent / divisor : cotangent * (T(1) / divisor);
    }
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    const std::int64_t count = plane(call);
    Reduction r;
    r.extents.assign(call.shape(0).begin() + 2, call.shape(0).end());
    for (std::int64_t i = 0; i < count; ++i) r.a.push_back(call.tensor(0)->at(index * count + i));
    r.divisor = static_cast<double>(count);
    return r;
  }

  static std::vector<bool> unspecified(const Call& call, int) {
    return std::vector<bool>(plane(call) == 0 ? static_cast<std::size_t>(element_count(output_shape(call))) : 0, true);
  }

  static Sample sample(SampleContext& c) {
    Shape shape = c.shape(3, 5, 9);
    if (c.rng().chance(0.2)) shape.back() = c.rng().integer(50, 2000);
    Sample s = c.make(kName, {c.tensor(shape)});
    if (c.dtype() == DType::bf16) s.opset = 22;
    return s;
  }

  static std::vector<Sample> refused() {
    return {refused_sample(kName, {Tensor::zeros(DType::f32, {2, 3})}, {}, "dimensions"),
            refused_sample(kName, {Tensor::zeros(DType::i32, {1, 1, 2})}, {}, "type"),
            refused_sample(kName, {Tensor::zeros(DType::bf16, {1, 1, 2})}, {}, "bfloat16", 13),
            refused_sample(kName, {Tensor::zeros(DType::f32, {1, 1, 2})}, {{"keepdims", std::int64_t{0}}}, "keepdims")};
  }
};

}  // namespace

const MetaOperator& global_average_pool() {
  static const MetaOperator op = describe<GlobalAveragePool>();
  return op;
}

}  // namespace opdiff::operators
