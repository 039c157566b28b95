#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Greater {
  static constexpr std::string_view kName = "Greater";
  static constexpr std::string_view kDocumentation =
      R"(C = A > B, elementwise, over shapes that broadcast (numpy's rule)

A bool: exact. False where either is NaN; zeros of both signs are equal. Integers from opset 9. Kernels that read subnormals as zero find
them equal: a convention.)";
  static constexpr Arity kInputs{2, 2};
  static constexpr TypeSet kTypes = kNumericTypes;

  static Expected<Types> infer(const Call& call) {
    if (is_integer(call.dtype(0)) && call.opset() < 9)
      return make_error("the inputs have type {}, which the operator takes from opset 9 on (opset {})",
                        dtype_name(call.dtype(0)), call.opset());
    OPDIFF_TRY(Types types, infer_binary(call));
    types[0].dtype = DType::boolean;
    return types;
  }

  static DType output_dtype(const Call&, int) { return DType::boolean; }

  static std::vector<Tensor> exact(const Call& call) {
    if (is_float(call.dtype(0))) return {compared(call, call.tensor(0)->to_doubles(), call.tensor(1)->to_doubles())};
    const std::vector<std::int64_t> a = call.tensor(0)->to_int64s(), b = call.tensor(1)->to_int64s();
    if (is_signed_integer(call.dtype(0))) return {compared(call, a, b)};
    using Unsigned = std::vector<std::uint64_t>;
    return {compared(call, Unsigned(a.begin(), a.end()), Unsigned(b.begin(), b.end()))};
  }

  static std::vector<Convention> conventions(const Call& call) {
    if (!is_float(call.dtype(0))) return {};
    std::vector<double> a = call.tensor(0)->to_doubles(), b = call.tensor(1)->to_doubles();
    const double normal = format_of(call.dtype(0)).lambda();
    for (std::vector<double>* x : {&a, &b})
      for (double& v : *x)
        if (std::fabs(v) < normal) v = 0;
    return {{"subnormals treated as zero", {compared(call, a, b)}}};
  }

  static Sample sample(SampleContext& c) {
    Sample s = sample_binary(c, kName);
    if (is_integer(c.dtype())) s.opset = std::max(s.opset, 9);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor i = Tensor::zeros(DType::i32, {2});
    std::vector<Sample> samples = refused_binary(kName);
    samples.push_back(refused_sample(kName, {i, i}, {}, "opset 9", 8));
    return samples;
  }

 private:
  template <class X>
  static Tensor compared(const Call& call, const std::vector<X>& a, const std::vector<X>& b) {
    const Shape shape = *broadcast_shapes(call.shape(0), call.shape(1));
    std::vector<std::int64_t> c(static_cast<std::size_t>(element_count(shape)));
    for_each_pair(call.shape(0), call.shape(1), shape,
                  [&](std::size_t i, std::size_t ia, std::size_t ib) { c[i] = a[ia] > b[ib]; });
    return Tensor::from_int64s(DType::boolean, shape, c);
  }
};

}  // namespace

const MetaOperator& greater() {
  static const MetaOperator op = describe<Greater>();
  return op;
}

}  // namespace opdiff::operators
