#include "ops/reduce.h"

namespace opdiff::operators {
namespace {

struct ReduceSum {
  static constexpr std::string_view kName = "ReduceSum";
  static constexpr std::string_view kDocumentation = R"(Y = sum of X over `axes`

No axes: over all, or with noop_with_empty_axes = 1 over none (Y = X). The sum of an empty set is 0. Frameworks differ in the order of
summation. Integers wrap around in the type of X.)";
  static constexpr Arity kInputs{1, 2};
  static constexpr TypeSet kTypes =
      kFloatTypes | type_bit(DType::i32) | type_bit(DType::i64) | type_bit(DType::u32) | type_bit(DType::u64);
  static constexpr bool kIntegers = true;

  static std::vector<AttributeSpec> attributes() { return reduce_attributes(kAxesSince); }

  static Expected<Types> infer(const Call& call) { return infer_reduce(call, kAxesSince); }

  template <class T>
  static void forward(Frame<T>& frame) {
    reduce_sets(frame, *reduce_layout(frame.call(), kAxesSince),
                [](const auto* x, std::span<const std::int64_t> terms) {
                  Sum<T> sum;
                  for (const std::int64_t term : terms) sum.add(T(x[term]));
                  return sum.result();
                });
  }

  static constexpr std::string_view kGradientDocumentation = "dX = dY, repeated over the axes that were reduced.";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    repeat_cotangents(frame, *reduce_layout(frame.call(), kAxesSince),
                      [](const T& cotangent, std::size_t) { return cotangent; });
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    return reduce_terms(call, *reduce_layout(call, kAxesSince), index);
  }

  static Sample sample(SampleContext& c) { return sample_reduce(c, kName, kAxesSince, false); }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = refused_reduce(kName, kAxesSince);
    samples.push_back(refused_sample(kName, {Tensor::zeros(DType::u8, {2})}, {}, "type"));
    return samples;
  }

 private:
  static constexpr int kAxesSince = 13;
};

}  // namespace

const MetaOperator& reduce_sum() {
  static const MetaOperator op = describe<ReduceSum>();
  return op;
}

}  // namespace opdiff::operators
