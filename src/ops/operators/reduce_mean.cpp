#include "ops/reduce.h"

namespace opdiff::operators {
namespace {

struct ReduceMean {
  static constexpr std::string_view kName = "ReduceMean";
  static constexpr std::string_view kDocumentation = R"(Y = (sum of X over `axes`) / count

No axes: over all, or with noop_with_empty_axes = 1 over none (Y = X). The mean of an empty set is undefined (0 / 0). Frameworks divide by
the count or multiply by its reciprocal, and differ in the order of summation. Integers: ONNX does not say how the quotient is rounded.
Here, as in its reference implementation and in onnxruntime, it is truncated toward zero; rounding down is a convention, and so is a sum
that wraps around in the type of X before the division (numpy, onnxruntime).)";
  static constexpr Arity kInputs{1, 2};
  static constexpr TypeSet kTypes =
      kFloatTypes | type_bit(DType::i32) | type_bit(DType::i64) | type_bit(DType::u32) | type_bit(DType::u64);
  static constexpr bool kIntegers = true;

  static std::vector<AttributeSpec> attributes() { return reduce_attributes(kAxesSince); }
  static std::vector<std::string_view> formulas() {
    return {"sum divided by the count", "sum times the reciprocal of the count"};
  }

  static Expected<Types> infer(const Call& call) { return infer_reduce(call, kAxesSince); }

  template <class T>
  static void forward(Frame<T>& frame) {
    reduce_sets(frame, *reduce_layout(frame.call(), kAxesSince),
                [&](const auto* x, std::span<const std::int64_t> terms) {
                  Sum<T> sum;
                  for (const std::int64_t term : terms) sum.add(T(x[term]));
                  const T total = sum.result();
                  const auto count = static_cast<std::int64_t>(terms.size());
                  if constexpr (std::is_integral_v<T>)
                    return count == 0 ? T(0) : static_cast<T>(total / static_cast<T>(count));
                  else
                    return mean(total, count, frame.formula());
                });
  }

  static std::vector<std::string_view> gradient_formulas() {
    return {"divided by the count", "times the reciprocal of the count"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    repeat_cotangents(frame, *reduce_layout(frame.call(), kAxesSince), [&](const T& cotangent, std::size_t count) {
      return mean(cotangent, static_cast<std::int64_t>(count), frame.formula());
    });
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    Reduction r = reduce_terms(call, *reduce_layout(call, kAxesSince), index);
    r.divisor = static_cast<double>(r.a.size());
    return r;
  }

  static std::vector<bool> unspecified(const Call& call, int) {
    const ReduceLayout l = *reduce_layout(call, kAxesSince);
    return std::vector<bool>(element_count(l.extents) == 0 ? static_cast<std::size_t>(element_count(l.shape)) : 0,
                             true);
  }

  static std::vector<Convention> conventions(const Call& call) {
    const Tensor& x = *call.tensor(0);
    const ReduceLayout l = *reduce_layout(call, kAxesSince);
    const std::vector<std::int64_t> terms = l.term_offsets();
    if (!is_integer(x.dtype()) || terms.empty()) return {};
    const auto n = static_cast<std::int64_t>(terms.size());
    const int bits = static_cast<int>(dtype_size(x.dtype())) * 8;
    const bool is_signed = is_signed_integer(x.dtype());
    std::vector<std::int64_t> down, wrapped;
    for (std::int64_t o = 0; o < element_count(l.shape); ++o) {
      std::uint64_t sum = 0;
      for (const std::int64_t term : terms) sum += static_cast<std::uint64_t>(x.int_at(l.first(o) + term));
      const auto total = static_cast<std::int64_t>(sum);
      down.push_back(is_signed ? total / n - (total % n < 0)
                               : static_cast<std::int64_t>(sum / static_cast<std::uint64_t>(n)));
      const auto narrow = static_cast<std::int64_t>(sum << (64 - bits));
      wrapped.push_back(
          is_signed ? (narrow >> (64 - bits)) / n
                    : static_cast<std::int64_t>((sum << (64 - bits) >> (64 - bits)) / static_cast<std::uint64_t>(n)));
    }
    return {{"the quotient is rounded down", {Tensor::from_int64s(x.dtype(), l.shape, down)}},
            {"the sum wraps around in the type of the data", {Tensor::from_int64s(x.dtype(), l.shape, wrapped)}}};
  }

  static Sample sample(SampleContext& c) { return sample_reduce(c, kName, kAxesSince, false); }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = refused_reduce(kName, kAxesSince);
    samples.push_back(refused_sample(kName, {Tensor::zeros(DType::u8, {2})}, {}, "type"));
    return samples;
  }

 private:
  static constexpr int kAxesSince = 18;

  template <class T>
  static T mean(const T& total, std::int64_t count, int formula) {
    if (count == 1) return total;
    const T divisor(static_cast<double>(count));
    return formula == 0 ? total / divisor : total * (T(1) / divisor);
  }
};

}  // namespace

const MetaOperator& reduce_mean() {
  static const MetaOperator op = describe<ReduceMean>();
  return op;
}

}  // namespace opdiff::operators
