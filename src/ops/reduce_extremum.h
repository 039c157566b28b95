// ReduceMax and ReduceMin: the winner of each set of elements, and gradients where several tie.
#pragma once

#include <limits>

#include "ops/extremum.h"
#include "ops/reduce.h"

namespace opdiff {

// ReduceMax and ReduceMin without their names; Choice is Largest or Smallest.
template <class Choice>
struct ReduceExtremum {
  static constexpr Arity kInputs{1, 2};
  static constexpr TypeSet kTypes = kFloatTypes | type_bit(DType::i8) | type_bit(DType::i32) | type_bit(DType::i64) |
                                    type_bit(DType::u8) | type_bit(DType::u32) | type_bit(DType::u64) |
                                    type_bit(DType::boolean);
  static constexpr bool kIntegers = true;

  static std::vector<AttributeSpec> attributes() { return reduce_attributes(kAxesSince); }

  static Expected<Types> infer(const Call& call) {
    const DType dtype = call.dtype(0);
    if (call.opset() < since(dtype))
      return make_error("data has type {}, which the operator takes from opset {} on (opset {})", dtype_name(dtype),
                        since(dtype), call.opset());
    return infer_reduce(call, kAxesSince);
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    using Exact = typename Frame<T>::Exact;
    const auto nothing = extremum_of_nothing<Choice, Exact>(frame.call().dtype(0));
    reduce_sets(frame, layout_of(frame.call()), [&](const Exact* x, std::span<const std::int64_t> terms) {
      if (terms.empty()) return T(nothing);
      // From the first element on, not from nothing: an infinity that equals it depends on no input.
      Exact best = x[terms[0]];
      for (const std::int64_t term : terms.subspan(1)) best = Choice::of(best, x[term]);
      return T(best);
    });
  }

  static std::vector<Convention> conventions(const Call& call) {
    const Tensor& x = *call.tensor(0);
    if (!is_float(x.dtype())) return {};
    const ReduceLayout layout = layout_of(call);
    const std::vector<std::int64_t> terms = layout.term_offsets();
    if (terms.empty()) return {};
    std::vector<Convention> list;
    for (const NanHabit& habit : kNanHabits) {
      std::vector<double> y(static_cast<std::size_t>(element_count(layout.shape)));
      for (std::size_t o = 0; o < y.size(); ++o) {
        const std::int64_t first = layout.first(static_cast<std::int64_t>(o));
        y[o] = x.at(first);
        for (const std::int64_t term : terms) y[o] = extremum<Choice>(y[o], x.at(first + term), habit);
      }
      list.push_back({habit.name, {Tensor::from_doubles(x.dtype(), layout.shape, y)}});
    }
    return list;
  }

  static std::vector<std::string_view> gradient_convention_formulas() {
    return {"the last of equal elements", "an equal share for equal elements",
            "an equal share for equal elements, NaN for all where one is NaN"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const ReduceLayout layout = layout_of(frame.call());
    const auto x = frame.input(0), dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    const std::vector<std::int64_t> terms = layout.term_offsets();
    if (terms.empty()) return;
    std::vector<std::size_t> winners;
    for (std::size_t o = 0; o < dy.size(); ++o) {
      const std::int64_t first = layout.first(static_cast<std::int64_t>(o));
      winners.clear();
      for (const std::int64_t term : terms) {
        const auto at = static_cast<std::size_t>(first + term);
        if (!winners.empty() && Choice::beats(x[at], x[winners[0]])) winners.clear();
        if (winners.empty() || ties(x[at], x[winners[0]])) winners.push_back(at);
      }
      const T cotangent(dy[o]);
      if (frame.formula() == 0) {
        dx[winners.front()] = cotangent;
      } else if (frame.formula() == 1) {
        dx[winners.back()] = cotangent;
      } else if (frame.formula() == 3 && x[winners[0]] != x[winners[0]]) {
        for (const std::int64_t term : terms)
          dx[static_cast<std::size_t>(first + term)] = T(std::numeric_limits<double>::quiet_NaN());
      } else {
        // An implementation may round the count to its inner format.
        const T count = GradientFrame<T>::parameter(static_cast<double>(winners.size()));
        for (const std::size_t at : winners) dx[at] = winners.size() == 1 ? cotangent : cotangent / count;
      }
    }
  }

  static Sample sample_sets(SampleContext& c, std::string_view op) {
    return sample_reduce(c, op, kAxesSince, true, since(c.dtype()));
  }

  static std::vector<Sample> refused_sets(std::string_view op) {
    std::vector<Sample> samples = refused_reduce(op, kAxesSince);
    samples.push_back(refused_sample(op, {Tensor::zeros(DType::u8, {2})}, {}, "uint8", 11));
    samples.push_back(refused_sample(op, {Tensor::zeros(DType::boolean, {2})}, {}, "bool", 19));
    samples.push_back(refused_sample(op, {Tensor::zeros(DType::i16, {2})}, {}, "type"));
    return samples;
  }

 private:
  static constexpr int kAxesSince = 18;

  static int since(DType dtype) {
    if (dtype == DType::boolean) return 20;
    return dtype_size(dtype) == 1 ? 12 : 1;
  }
  static ReduceLayout layout_of(const Call& call) { return *reduce_layout(call, kAxesSince); }
};

}  // namespace opdiff
