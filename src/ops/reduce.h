// What the reductions share: which axes are reduced, the walk over the sets of elements that make one of Y, samples and
// refused samples. `axes_since` is the opset from which `axes` is an input, no longer an attribute.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "numerics/parallel.h"
#include "ops/op.h"

namespace opdiff {

struct ReduceLayout {
  Shape shape;                                      // of Y
  Shape kept, kept_strides, extents, term_strides;  // of the kept and of the reduced axes, strides in X

  // Flat index in X of the first element of the set that makes element `output` of Y.
  std::int64_t first(std::int64_t output) const;
  // Where the elements of a set are, from its first on, in index order.
  std::vector<std::int64_t> term_offsets() const;
};

// axes (absent unless the node has any), keepdims, noop_with_empty_axes.
std::vector<AttributeSpec> reduce_attributes(int axes_since);
// Input `axes`, where it is one, must be known.
Expected<ReduceLayout> reduce_layout(const Call& call, int axes_since);
Expected<Types> infer_reduce(const Call& call, int axes_since);

// Y[o] = f(x, terms): the elements of the set are x[terms[0]], x[terms[1]], ...
template <class T, class F>
void reduce_sets(Frame<T>& frame, const ReduceLayout& layout, F f) {
  const auto x = frame.input(0);
  const auto y = frame.output(0, layout.shape);
  const std::vector<std::int64_t> terms = layout.term_offsets();
  constexpr std::int64_t kBlock = 256;
  const auto outputs = static_cast<std::int64_t>(y.size());
  parallel_for((outputs + kBlock - 1) / kBlock, [&](std::int64_t block) {
    for (std::int64_t o = block * kBlock; o < std::min(outputs, (block + 1) * kBlock); ++o)
      y[static_cast<std::size_t>(o)] = f(x.data() + layout.first(o), std::span(terms));
  });
}

// The gradient of X where each element of a set has the same: f(cotangent, count of the set).
template <class T, class F>
void repeat_cotangents(GradientFrame<T>& frame, const ReduceLayout& layout, F f) {
  const auto dy = frame.cotangent();
  const auto dx = frame.gradient(0);
  const std::vector<std::int64_t> terms = layout.term_offsets();
  for (std::size_t o = 0; o < dy.size(); ++o) {
    const T value = f(T(dy[o]), terms.size());
    const std::int64_t first = layout.first(static_cast<std::int64_t>(o));
    for (const std::int64_t term : terms) dx[static_cast<std::size_t>(first + term)] = value;
  }
}

// The terms of element `output` of Y.
Reduction reduce_terms(const Call& call, const ReduceLayout& layout, std::int64_t output);

// Any axes of a shape, or a few long sets; not below opset `since`. Elements may be NaN or infinite where `compares`:
// an operator that does not add them up.
Sample sample_reduce(SampleContext& context, std::string_view op, int axes_since, bool compares, int since = 1);
std::vector<Sample> refused_reduce(std::string_view op, int axes_since);

}  // namespace opdiff
