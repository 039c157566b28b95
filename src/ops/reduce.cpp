#include "ops/reduce.h"

#include "ops/axes.h"

namespace opdiff {
namespace {

std::int64_t offset(std::int64_t index, const Shape& shape, const Shape& strides) {
  std::int64_t result = 0;
  for (std::size_t d = shape.size(); d-- > 0;) {
    result += index % shape[d] * strides[d];
    index /= shape[d];
  }
  return result;
}

Shape given_axes(const Call& call, int axes_since) {
  if (call.opset() < axes_since) return call.integers("axes");
  return call.has(1) ? call.tensor(1)->to_int64s() : Shape();
}

}  // namespace

std::int64_t ReduceLayout::first(std::int64_t output) const { return offset(output, kept, kept_strides); }

std::vector<std::int64_t> ReduceLayout::term_offsets() const {
  std::vector<std::int64_t> result(static_cast<std::size_t>(element_count(extents)));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = offset(static_cast<std::int64_t>(i), extents, term_strides);
  return result;
}

std::vector<AttributeSpec> reduce_attributes(int axes_since) {
  return {{"axes", AttributeKind::integers, "axes to reduce, in [-rank, rank); default all; an input in later opsets",
           1, axes_since - 1},
          {"keepdims", AttributeKind::integer, "1 (default): reduced axes stay with extent 1"},
          {"noop_with_empty_axes", AttributeKind::integer, "1: no axes means none; default 0: all", axes_since}};
}

Expected<ReduceLayout> reduce_layout(const Call& call, int axes_since) {
  const Shape& x = call.shape(0);
  OPDIFF_TRY(const std::vector<int> axes, normalise_axes(given_axes(call, axes_since), call.rank(0)));
  const bool all = axes.empty() && call.integer("noop_with_empty_axes", 0) == 0;
  const bool keep = call.integer("keepdims", 1) != 0;
  const Shape strides = strides_of(x);
  ReduceLayout layout;
  for (std::size_t d = 0; d < x.size(); ++d) {
    const bool is_reduced = all || contains(axes, static_cast<std::int64_t>(d));
    (is_reduced ? layout.extents : layout.kept).push_back(x[d]);
    (is_reduced ? layout.term_strides : layout.kept_strides).push_back(strides[d]);
    if (!is_reduced)
      layout.shape.push_back(x[d]);
    else if (keep)
      layout.shape.push_back(1);
  }
  return layout;
}

Expected<Types> infer_reduce(const Call& call, int axes_since) {
  const DType dtype = call.dtype(0);
  if (dtype == DType::bf16 && call.opset() < 13)
    return make_error("data has type bfloat16, which the operator takes from opset 13 on (opset {})", call.opset());
  if (call.input_count() > 1 && call.opset() < axes_since)
    return make_error("2 inputs given; 'axes' is an input from opset {} on (opset {})", axes_since, call.opset());
  if (call.has(1)) {
    if (call.dtype(1) != DType::i64) return make_error("'axes' has type {}, expected int64", dtype_name(call.dtype(1)));
    if (call.rank(1) != 1) return make_error("'axes' has shape {}, expected one dimension", to_string(call.shape(1)));
    if (!call.tensor(1)) return Types{{dtype, std::nullopt}};
  }
  OPDIFF_TRY(const ReduceLayout layout, reduce_layout(call, axes_since));
  return Types{{dtype, layout.shape}};
}

Reduction reduce_terms(const Call& call, const ReduceLayout& layout, std::int64_t output) {
  Reduction r;
  r.extents = layout.extents;
  const std::int64_t first = layout.first(output);
  for (const std::int64_t term : layout.term_offsets()) r.a.push_back(call.tensor(0)->at(first + term));
  return r;
}

Sample sample_reduce(SampleContext& c, std::string_view op, int axes_since, bool compares, int since) {
  Rng& rng = c.rng();
  const int opset = std::max(c.opset(), since);
  const bool is_long = rng.chance(0.1);
  Shape x =
      is_long ? Shape{c.extent(1, 4), rng.integer(1000, 20000)} : c.shape_or_empty(1, 5, rng.chance(0.2) ? 30 : 7);
  while (element_count(x) > 100000) *std::max_element(x.begin(), x.end()) /= 2;
  if (is_long && rng.chance(0.3)) std::swap(x[0], x[1]);
  const auto rank = static_cast<std::int64_t>(x.size());
  Shape axes;
  for (std::int64_t d = 0; d < rank; ++d)
    if (is_long ? x[static_cast<std::size_t>(d)] > 4 : rng.chance(0.5))
      axes.push_back(opset >= 11 && rng.chance(0.4) ? d - rank : d);
  if (axes.size() > 1 && rng.chance(0.2)) std::swap(axes.front(), axes.back());
  const bool given = !axes.empty() || (opset >= axes_since && rng.chance(0.5));
  std::vector<std::optional<Tensor>> inputs{compares ? c.elements(x) : c.tensor(x)};
  if (given && opset >= axes_since) inputs.push_back(SampleContext::int64s(axes));
  Sample s = c.make(op, std::move(inputs));
  s.opset = opset;
  if (given && opset < axes_since) s.node.attributes["axes"] = axes;
  if (s.initialiser.size() > 1) s.initialiser[1] = rng.chance(0.8);
  if (rng.chance(0.6)) s.node.attributes["keepdims"] = std::int64_t{rng.chance(0.5)};
  if (opset >= axes_since && rng.chance(0.3)) s.node.attributes["noop_with_empty_axes"] = std::int64_t{rng.chance(0.7)};
  return s;
}

std::vector<Sample> refused_reduce(std::string_view op, int axes_since) {
  const int before = axes_since - 1;
  const Tensor x = Tensor::zeros(DType::f32, {2, 3});
  const auto axes = [](std::vector<std::int64_t> values) { return SampleContext::int64s(values); };
  return {refused_sample(op, {x}, {{"axes", Shape{2}}}, "axes", before),
          refused_sample(op, {x}, {{"axes", Shape{-3}}}, "axes", before),
          refused_sample(op, {x}, {{"axes", Shape{0, -2}}}, "twice", before),
          refused_sample(op, {x}, {{"axes", Shape{0}}}, "axes", axes_since),
          refused_sample(op, {x, axes({2})}, {}, "axes", axes_since),
          refused_sample(op, {x, axes({1, 1})}, {}, "twice", axes_since),
          refused_sample(op, {x, axes({0})}, {}, "axes", before),
          refused_sample(op, {x, Tensor::zeros(DType::i32, {1})}, {}, "int64", axes_since),
          refused_sample(op, {x, Tensor::zeros(DType::i64, {1, 1})}, {}, "dimension", axes_since),
          refused_sample(op, {x}, {{"noop_with_empty_axes", std::int64_t{1}}}, "noop_with_empty_axes", before),
          refused_sample(op, {x}, {{"keepdims", 1.0f}}, "keepdims"),
          refused_sample(op, {Tensor::zeros(DType::bf16, {2})}, {}, "bfloat16", 11)};
}

}  // namespace opdiff
