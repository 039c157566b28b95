#include <cmath>

#include "numerics/parallel.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

// Which axes are reduced, and the walk over them.
struct Layout {
  std::vector<bool> reduced;
  Shape shape;                                      // of Y
  Shape kept, kept_strides, extents, term_strides;  // of the kept and of the reduced axes, strides in X

  static std::int64_t offset(std::int64_t index, const Shape& shape, const Shape& strides) {
    std::int64_t result = 0;
    for (std::size_t d = shape.size(); d-- > 0;) {
      result += index % shape[d] * strides[d];
      index /= shape[d];
    }
    return result;
  }
  std::int64_t first(std::int64_t output) const { return offset(output, kept, kept_strides); }
  std::vector<std::int64_t> term_offsets() const {
    std::vector<std::int64_t> result(static_cast<std::size_t>(element_count(extents)));
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] = offset(static_cast<std::int64_t>(i), extents, term_strides);
    return result;
  }
};

// The axes given (opset 18: as input 1), or none. Input 1 must be known.
Shape given_axes(const Call& call) {
  if (call.opset() < 18) return call.integers("axes");
  return call.has(1) ? call.tensor(1)->to_int64s() : Shape();
}

Expected<Layout> layout_of(const Call& call) {
  const Shape& x = call.shape(0);
  const Shape axes = given_axes(call);
  Layout l;
  const bool all = axes.empty() && call.integer("noop_with_empty_axes", 0) == 0;
  l.reduced.assign(x.size(), all);
  for (const std::int64_t given : axes) {
    const auto axis = normalise_axis(given, call.rank(0));
    if (!axis) return make_error("'axes' is {}: {}", to_string(axes), axis.error().message);
    if (l.reduced[static_cast<std::size_t>(*axis)])
      return make_error("'axes' is {}: axis {} is named twice", to_string(axes), *axis);
    l.reduced[static_cast<std::size_t>(*axis)] = true;
  }
  const bool keep = call.integer("keepdims", 1) != 0;
  const Shape strides = strides_of(x);
  for (std::size_t d = 0; d < x.size(); ++d) {
    (l.reduced[d] ? l.extents : l.kept).push_back(x[d]);
    (l.reduced[d] ? l.term_strides : l.kept_strides).push_back(strides[d]);
    if (!l.reduced[d])
      l.shape.push_back(x[d]);
    else if (keep)
      l.shape.push_back(1);
  }
  return l;
}

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

  static std::vector<AttributeSpec> attributes() {
    return {{"axes", AttributeKind::integers, "axes to reduce, in [-rank, rank); default all; an input from opset 18",
             1, 17},
            {"keepdims", AttributeKind::integer, "1 (default): reduced axes stay with extent 1"},
            {"noop_with_empty_axes", AttributeKind::integer, "1: no axes means none; default 0: all", 18}};
  }
  static std::vector<std::string_view> formulas() {
    return {"sum divided by the count", "sum times the reciprocal of the count"};
  }

  static Expected<Types> infer(const Call& call) {
    const DType dtype = call.dtype(0);
    if (dtype == DType::bf16 && call.opset() < 13)
      return make_error("data has type bfloat16, which the operator takes from opset 13 on (opset {})", call.opset());
    if (call.input_count() > 1 && call.opset() < 18)
      return make_error("2 inputs given; 'axes' is an input from opset 18 on (opset {})", call.opset());
    if (call.has(1)) {
      if (call.dtype(1) != DType::i64)
        return make_error("'axes' has type {}, expected int64", dtype_name(call.dtype(1)));
      if (call.rank(1) != 1) return make_error("'axes' has shape {}, expected one dimension", to_string(call.shape(1)));
      if (!call.tensor(1)) return Types{{dtype, std::nullopt}};
    }
    OPDIFF_TRY(const Layout l, layout_of(call));
    return Types{{dtype, l.shape}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Layout l = *layout_of(frame.call());
    const auto y = frame.output(0, l.shape);
    const auto x = frame.input(0);
    const std::vector<std::int64_t> terms = l.term_offsets();
    const auto n = static_cast<std::int64_t>(terms.size());
    constexpr std::int64_t kBlock = 256;
    const auto outputs = static_cast<std::int64_t>(y.size());
    parallel_for((outputs + kBlock - 1) / kBlock, [&](std::int64_t block) {
      for (std::int64_t o = block * kBlock; o < std::min(outputs, (block + 1) * kBlock); ++o) {
        const auto* source = x.data() + l.first(o);
        Sum<T> sum;
        for (const std::int64_t term : terms) sum.add(T(source[term]));
        T& result = y[static_cast<std::size_t>(o)];
        if constexpr (std::is_integral_v<T>)
          result = n == 0 ? T(0) : static_cast<T>(sum.result() / static_cast<T>(n));
        else if (n == 1)
          result = sum.result();
        else if (frame.formula() == 0)
          result = sum.result() / T(static_cast<double>(n));
        else
          result = sum.result() * (T(1) / T(static_cast<double>(n)));
      }
    });
  }

  static std::vector<std::string_view> gradient_formulas() {
    return {"divided by the count", "times the reciprocal of the count"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Layout l = *layout_of(frame.call());
    const auto dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    const std::vector<std::int64_t> terms = l.term_offsets();
    const T count(static_cast<double>(terms.size()));
    for (std::size_t o = 0; o < dy.size(); ++o) {
      const T cotangent(dy[o]);
      const T share_of_each = terms.size() == 1      ? cotangent
                              : frame.formula() == 0 ? cotangent / count
                                                     : cotangent * (T(1) / count);
      const std::int64_t first = l.first(static_cast<std::int64_t>(o));
      for (const std::int64_t term : terms) dx[static_cast<std::size_t>(first + term)] = share_of_each;
    }
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    const Layout l = *layout_of(call);
    Reduction r;
    r.extents = l.extents;
    const std::int64_t first = l.first(index);
    for (const std::int64_t term : l.term_offsets()) r.a.push_back(call.tensor(0)->at(first + term));
    r.divisor = static_cast<double>(r.a.size());
    return r;
  }

  static std::vector<bool> unspecified(const Call& call, int) {
    const Layout l = *layout_of(call);
    return std::vector<bool>(element_count(l.extents) == 0 ? static_cast<std::size_t>(element_count(l.shape)) : 0,
                             true);
  }

  static std::vector<Convention> conventions(const Call& call) {
    const Tensor& x = *call.tensor(0);
    const Layout l = *layout_of(call);
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

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const bool is_long = rng.chance(0.1);
    Shape x = is_long ? Shape{c.extent(1, 4), rng.integer(1000, 20000)} : c.shape(1, 5, rng.chance(0.2) ? 30 : 7);
    while (element_count(x) > 100000) *std::max_element(x.begin(), x.end()) /= 2;
    if (is_long && rng.chance(0.3)) std::swap(x[0], x[1]);
    const auto rank = static_cast<std::int64_t>(x.size());
    Shape axes;
    for (std::int64_t d = 0; d < rank; ++d)
      if (is_long ? x[static_cast<std::size_t>(d)] > 4 : rng.chance(0.5))
        axes.push_back(c.opset() >= 11 && rng.chance(0.4) ? d - rank : d);
    if (axes.size() > 1 && rng.chance(0.2)) std::swap(axes.front(), axes.back());
    const bool given = !axes.empty() || (c.opset() >= 18 && rng.chance(0.5));
    std::vector<std::optional<Tensor>> inputs{c.tensor(x)};
    if (given && c.opset() >= 18) inputs.push_back(SampleContext::int64s(axes));
    Sample s = c.make(kName, std::move(inputs));
    if (given && c.opset() < 18) s.node.attributes["axes"] = axes;
    if (s.initialiser.size() > 1) s.initialiser[1] = rng.chance(0.8);
    if (rng.chance(0.6)) s.node.attributes["keepdims"] = std::int64_t{rng.chance(0.5)};
    if (c.opset() >= 18 && rng.chance(0.3)) s.node.attributes["noop_with_empty_axes"] = std::int64_t{rng.chance(0.7)};
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    const auto axes = [](std::vector<std::int64_t> values) { return SampleContext::int64s(values); };
    return {refused_sample(kName, {x}, {{"axes", Shape{2}}}, "axes"),
            refused_sample(kName, {x}, {{"axes", Shape{-3}}}, "axes"),
            refused_sample(kName, {x}, {{"axes", Shape{0, -2}}}, "twice"),
            refused_sample(kName, {x}, {{"axes", Shape{0}}}, "axes", 18),
            refused_sample(kName, {x, axes({2})}, {}, "axes", 18),
            refused_sample(kName, {x, axes({1, 1})}, {}, "twice", 18),
            refused_sample(kName, {x, axes({0})}, {}, "axes", 17),
            refused_sample(kName, {x, Tensor::zeros(DType::i32, {1})}, {}, "int64", 18),
            refused_sample(kName, {x, Tensor::zeros(DType::i64, {1, 1})}, {}, "dimension", 18),
            refused_sample(kName, {x}, {{"noop_with_empty_axes", std::int64_t{1}}}, "noop_with_empty_axes", 17),
            refused_sample(kName, {x}, {{"keepdims", 1.0f}}, "keepdims"),
            refused_sample(kName, {Tensor::zeros(DType::u8, {2})}, {}, "type")};
  }
};

}  // namespace

const MetaOperator& reduce_mean() {
  static const MetaOperator op = describe<ReduceMean>();
  return op;
}

}  // namespace opdiff::operators
