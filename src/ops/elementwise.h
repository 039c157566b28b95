// What the elementwise operators have in common: the walk over one input or over two that broadcast, their shape rules,
// samples and refused samples.
#pragma once

#include <cmath>
#include <type_traits>

#include "ops/op.h"

namespace opdiff {

// One input, one output of its type and shape.
inline Expected<Types> infer_same(const Call& call) { return Types{{call.dtype(0), call.shape(0)}}; }

// y[i] = f(x[i]); f takes the exact input.
template <class T, class F>
void map_elements(Frame<T>& frame, F f) {
  const auto x = frame.input(0);
  const auto y = frame.output(0, frame.call().shape(0));
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
}

// dx[i] = f(x[i], dy[i]), the gradient of an elementwise function; f takes the exact input.
template <class T, class F>
void map_slopes(GradientFrame<T>& frame, F f) {
  const auto x = frame.input(0), dy = frame.cotangent();
  const auto dx = frame.gradient(0);
  for (std::size_t i = 0; i < x.size(); ++i) dx[i] = f(x[i], T(dy[i]));
}

// The same on plain numbers, as an alternative answer where another slope is as good.
template <class F>
Convention other_slopes(const GradientCall& call, std::string name, F f) {
  std::vector<double> x = call.forward().tensor(0)->to_doubles();
  const std::vector<double> dy = call.cotangent(0)->to_doubles();
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = f(x[i], dy[i]);
  return {std::move(name), {Tensor::from_doubles(call.forward().dtype(0), call.forward().shape(0), x)}};
}

inline Sample sample_unary(SampleContext& c, std::string_view op) {
  return c.make(op, {c.elements(c.shape_or_empty(0, 5))});
}
// Of an operator that is NaN below zero: mostly of magnitudes, so that most cases are numbers.
inline Sample sample_mostly_positive(SampleContext& c, std::string_view op) {
  Sample s = sample_unary(c, op);
  if (c.rng().chance(0.75)) {
    std::vector<double> x = s.inputs[0]->to_doubles();
    for (double& value : x) value = std::fabs(value);
    s.inputs[0] = Tensor::from_doubles(s.inputs[0]->dtype(), s.inputs[0]->shape(), x);
  }
  return s;
}
// Of an operator without attributes; `wrong` is a type that it does not take.
std::vector<Sample> refused_unary(std::string_view op, DType wrong = DType::i32);

// Walks `shape` in order; f(i, a, b) gets the flat index and those of the elements that broadcast to it.
template <class F>
void for_each_pair(const Shape& a, const Shape& b, const Shape& shape, F f) {
  const std::int64_t count = element_count(shape);
  const Shape sa = broadcast_strides(a, shape), sb = broadcast_strides(b, shape);
  Shape at(shape.size(), 0);
  std::int64_t ia = 0, ib = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    f(static_cast<std::size_t>(i), static_cast<std::size_t>(ia), static_cast<std::size_t>(ib));
    for (std::size_t d = shape.size(); d-- > 0;) {
      ia += sa[d];
      ib += sb[d];
      if (++at[d] < shape[d]) break;
      ia -= sa[d] * shape[d];
      ib -= sb[d] * shape[d];
      at[d] = 0;
    }
  }
}

Expected<Types> infer_binary(const Call& call);
Sample sample_binary(SampleContext& context, std::string_view op);
std::vector<Sample> refused_binary(std::string_view op);

// c[i] = f(a[...], b[...]) over broadcast shapes; f takes scalars of T.
template <class T, class F>
void map_pairs(Frame<T>& frame, F f) {
  const Call& call = frame.call();
  const Shape shape = *broadcast_shapes(call.shape(0), call.shape(1));
  const auto a = frame.input(0), b = frame.input(1);
  const auto y = frame.output(0, shape);
  for_each_pair(call.shape(0), call.shape(1), shape,
                [&](std::size_t i, std::size_t ia, std::size_t ib) { y[i] = f(T(a[ia]), T(b[ib])); });
}

// The gradient of an operand: terms are added up where it was broadcast, else there is one of each element at most.
template <class T>
class OperandGradient {
 public:
  OperandGradient(std::span<T> gradient, bool was_broadcast)
      : gradient_(gradient), sums_(was_broadcast ? gradient.size() : 0) {}
  void add(std::size_t at, const T& term) {
    if (sums_.empty())
      gradient_[at] = term;
    else
      sums_[at].add(term);
  }
  void finish() {
    for (std::size_t i = 0; i < sums_.size(); ++i) gradient_[i] = sums_[i].result();
  }

 private:
  std::span<T> gradient_;
  std::vector<Sum<T>> sums_;
};

// The gradients of a binary operator: terms fa(a, b, dy) and fb(a, b, dy), summed over the axes along which an operand
// was broadcast.
template <class T, class FA, class FB>
void map_pair_slopes(GradientFrame<T>& frame, FA fa, FB fb) {
  const Call& call = frame.call();
  const Shape shape = *broadcast_shapes(call.shape(0), call.shape(1));
  const auto a = frame.input(0), b = frame.input(1), dy = frame.cotangent();
  for (int k = 0; k < 2; ++k) {
    if (!frame.wants(k)) continue;
    OperandGradient<T> gradient(frame.gradient(k), call.shape(k) != shape);
    for_each_pair(call.shape(0), call.shape(1), shape, [&](std::size_t i, std::size_t ia, std::size_t ib) {
      if (k == 0)
        gradient.add(ia, fa(T(a[ia]), T(b[ib]), T(dy[i])));
      else
        gradient.add(ib, fb(T(a[ia]), T(b[ib]), T(dy[i])));
    });
    gradient.finish();
  }
}

// Extents of the axes of `shape` along which an operand of shape `own` is broadcast.
Shape repeated_extents(const Shape& own, const Shape& shape);

// The terms of one element of a binary operator's gradient k, for named orders of summation; f(a, b, dy) as above, on
// plain numbers.
template <class F>
Reduction pair_slope_reduction(const GradientCall& gradient, int k, std::int64_t index, F f) {
  const Call& call = gradient.forward();
  const Shape shape = *broadcast_shapes(call.shape(0), call.shape(1));
  const std::vector<double> a = call.tensor(0)->to_doubles(), b = call.tensor(1)->to_doubles(),
                            dy = gradient.cotangent(0)->to_doubles();
  Reduction r;
  for_each_pair(call.shape(0), call.shape(1), shape, [&](std::size_t i, std::size_t ia, std::size_t ib) {
    if (static_cast<std::int64_t>(k == 0 ? ia : ib) == index) r.a.push_back(f(a[ia], b[ib], dy[i]));
  });
  r.extents = repeated_extents(call.shape(k), shape);  // in the order of the walk above
  return r;
}

// f on integers wraps around, as the frameworks' integers do: computed on the unsigned bits.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  else
    return f(a, b);
}

}  // namespace opdiff
