// What the elementwise operators have in common: the walk over one input or over two that broadcast, their shape rules,
// samples and refused samples.
#pragma once

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

inline Sample sample_unary(SampleContext& c, std::string_view op) {
  return c.make(op, {c.elements(c.shape_or_empty(0, 5))});
}

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

// f on integers wraps around, as the frameworks' integers do: computed on the unsigned bits.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  else
    return f(a, b);
}

}  // namespace opdiff
