#include <cmath>

#include "ops/elementwise.h"
#include "ops/evaluate.h"
#include "ops/matrix.h"
#include "ops/op.h"

namespace opdiff::operators {
const MetaOperator& gemm();

namespace {

struct Layout {
  std::int64_t m, n, k;
  Shape c_strides{0, 0};  // of C over [m, n]
};

Expected<Layout> layout_of(const Call& call) {
  const Shape& a = call.shape(0);
  const Shape& b = call.shape(1);
  if (a.size() != 2) return make_error("A has shape {}, expected 2 dimensions", to_string(a));
  if (b.size() != 2) return make_error("B has shape {}, expected 2 dimensions", to_string(b));
  const std::int64_t trans_a = call.integer("transA", 0), trans_b = call.integer("transB", 0);
  Layout l{trans_a ? a[1] : a[0], trans_b ? b[0] : b[1], trans_a ? a[0] : a[1]};
  if (const std::int64_t rows = trans_b ? b[1] : b[0]; rows != l.k)
    return make_error("A {} with transA = {} has {} columns, B {} with transB = {} has {} rows", to_string(a), trans_a,
                      l.k, to_string(b), trans_b, rows);
  if (!call.has(2)) return l;
  const Shape y{l.m, l.n};
  const auto both = broadcast_shapes(call.shape(2), y);
  if (!both || *both != y)
    return make_error("C has shape {}, which does not broadcast to {}", to_string(call.shape(2)), to_string(y));
  l.c_strides = broadcast_strides(call.shape(2), y);
  return l;
}

struct Gemm {
  static constexpr std::string_view kName = "Gemm";
  static constexpr std::string_view kDocumentation = R"(Y = alpha A' B' + beta C

A' [M, K] is A or its transpose, B' [K, N] likewise; C (optional from opset 11) broadcasts to [M, N], never the other way. Integers (32 and
64 bits, opset 9) wrap around; alpha and beta must be whole then. beta C may be added last or be the start of the accumulation, and alpha may
multiply the product or either operand, which may overflow where the product does not: all admissible. With beta = 0 (alpha = 0) BLAS does
not read C (A and B) at all, so that NaN and infinity there do not reach Y: a convention. Frameworks also differ in the order of summation
and in the format of the operands.)";
  static constexpr Arity kInputs{2, 3};
  static constexpr TypeSet kTypes =
      kFloatTypes | type_bit(DType::i32) | type_bit(DType::i64) | type_bit(DType::u32) | type_bit(DType::u64);
  static constexpr bool kIntegers = true;

  static std::vector<AttributeSpec> attributes() {
    return {{"alpha", AttributeKind::real, "factor of the product; default 1"},
            {"beta", AttributeKind::real, "factor of C; default 1"},
            {"transA", AttributeKind::integer, "not 0: A is transposed; default 0"},
            {"transB", AttributeKind::integer, "not 0: B is transposed; default 0"}};
  }
  static std::vector<std::string_view> formulas() {
    return {"C added last", "accumulation starts at C", "terms scaled by alpha, C added last"};
  }
  static std::vector<int> product_inputs() { return {0, 1}; }

  static Expected<Types> infer(const Call& call) {
    const DType dtype = call.dtype(0);
    const int since = dtype == DType::bf16 ? 13 : is_float(dtype) ? 1 : 9;
    if (call.opset() < since)
      return make_error("A has type {}, which the operator takes from opset {} on (opset {})", dtype_name(dtype), since,
                        call.opset());
    static constexpr const char* kNames[] = {"A", "B", "C"};
    for (int k = 1; k < call.input_count(); ++k)
      if (call.has(k) && call.dtype(k) != dtype)
        return make_error("{} has type {}, A has type {}", kNames[k], dtype_name(call.dtype(k)), dtype_name(dtype));
    if (!call.has(2) && call.opset() < 11)
      return make_error("C is missing, it is optional from opset 11 on (opset {})", call.opset());
    if (is_integer(dtype))
      for (const char* name : {"alpha", "beta"})
        if (const double factor = call.real(name, 1); !(std::fabs(factor) <= 0x1p31) || factor != std::trunc(factor))
          return make_error("attribute '{}' is {}, expected a whole number for {} operands", name, factor,
                            dtype_name(dtype));
    OPDIFF_TRY(const Layout l, layout_of(call));
    return Types{{dtype, Shape{l.m, l.n}}};
  }

  // alpha or beta, rounded to the inner format; its error is every element's.
  template <class T>
  static T factor(const Call& call, const char* name, int source) {
    const double value = call.real(name, 1);
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::int64_t>(value));
    else
      return share(T(1) * T(value), source);
  }

  template <class T>
  static T times(const T& a, const T& b) {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }

  // alpha a b in any order. Of enclosures all that these yield; one that leaves the range of the format for certain
  // yields an infinity or NaN and no number. Else one of the orders that BLAS has.
  template <class T>
  static T scaled_term(const T& alpha, const T& a, const T& b, bool scales_b) {
    if constexpr (requires { T::kSources; }) {
      T result = alpha * (a * b);
      for (const T& way : {(alpha * a) * b, a * (alpha * b)}) {
        const std::uint8_t overflow = result.overflow | way.overflow;
        if (!(result.e < kInfinity)) {
          result = way;
        } else if (way.e < kInfinity) {
          result.e = std::max(result.e, way.e);
          result.s = std::max(result.s, way.s);
        }
        result.overflow = overflow;
      }
      return result;
    } else {
      return scales_b ? times(a, times(alpha, b)) : times(times(alpha, a), b);
    }
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    using Exact = typename Frame<T>::Exact;
    const Call& call = frame.call();
    const Layout l = *layout_of(call);
    const auto y = frame.output(0, {l.m, l.n});
    const auto a_input = frame.input(0), b_input = frame.input(1);
    const auto c = call.has(2) ? frame.input(2) : std::span<const Exact>();
    const auto c_at = [&](std::int64_t i, std::int64_t j) -> const Exact& {
      return c[static_cast<std::size_t>(i * l.c_strides[0] + j * l.c_strides[1])];
    };
    std::vector<Exact> a_copy, b_copy;
    const Exact* a = a_input.data();
    const Exact* b = b_input.data();
    if (call.integer("transA", 0)) a = (a_copy = transposed(a, l.k, l.m)).data();
    if (call.integer("transB", 0)) b = (b_copy = transposed(b, l.n, l.k)).data();
    const T alpha = factor<T>(call, "alpha", 0), beta = factor<T>(call, "beta", 1);
    const bool scales = call.real("alpha", 1) != 1, scales_c = call.real("beta", 1) != 1;
    const bool c_first = frame.formula() == 1 && !c.empty();
    if (c_first && !scales && !scales_c) {
      start_at_c(l, a, b, c_at, y);
      return;
    }
    const bool term_by_term = c_first || (frame.formula() == 2 && scales);
    if (!term_by_term)
      batched_products(
          1, {l.m, l.n, l.k}, [&](std::int64_t) { return std::pair<const Exact*, const Exact*>(a, b); },
          static_cast<const Exact*>(nullptr), y.data());
    parallel_for(l.m, [&](std::int64_t i) {
      for (std::int64_t j = 0; j < l.n; ++j) {
        T& result = y[static_cast<std::size_t>(i * l.n + j)];
        const auto addend = [&] { return scales_c ? times(beta, T(c_at(i, j))) : T(c_at(i, j)); };
        if (term_by_term) {
          Sum<T> sum;
          if (c_first) sum.add(addend());
          for (std::int64_t k = 0; k < l.k; ++k) {
            const T left(a[i * l.k + k]), right(b[k * l.n + j]);
            sum.add(scales ? scaled_term(alpha, left, right, c_first) : times(left, right));
          }
          result = sum.result();
        } else if (scales) {
          result = times(alpha, result);
        }
        if (!c.empty() && !c_first) result = wrapping(result, addend(), [](auto x, auto y) { return x + y; });
      }
    });
  }

  // products() starts rows at values of their own; where C varies along columns the product is taken transposed, where
  // it varies along both row by row.
  template <class E, class C, class T>
  static void start_at_c(const Layout& l, const E* a, const E* b, const C& c_at, std::span<T> y) {
    std::vector<E> initial;
    if (l.c_strides[1] == 0) {
      for (std::int64_t i = 0; i < l.m; ++i) initial.push_back(c_at(i, 0));
      batched_products(
          1, {l.m, l.n, l.k}, [&](std::int64_t) { return std::pair<const E*, const E*>(a, b); }, initial.data(),
          y.data());
      return;
    }
    const std::vector<E> b_rows = transposed(b, l.k, l.n);
    if (l.c_strides[0] != 0) {
      parallel_for(l.m, [&](std::int64_t i) {
        std::vector<E> start;
        for (std::int64_t j = 0; j < l.n; ++j) start.push_back(c_at(i, j));
        products({l.n, 1, l.k}, b_rows.data(), a + i * l.k, start.data(), y.data() + i * l.n);
      });
      return;
    }
    for (std::int64_t j = 0; j < l.n; ++j) initial.push_back(c_at(0, j));
    const std::vector<E> a_columns = transposed(a, l.m, l.k);
    std::vector<T> result(y.size());
    batched_products(
        1, {l.n, l.m, l.k},
        [&](std::int64_t) { return std::pair<const E*, const E*>(b_rows.data(), a_columns.data()); }, initial.data(),
        result.data());
    for (std::int64_t i = 0; i < l.m; ++i)
      for (std::int64_t j = 0; j < l.n; ++j)
        y[static_cast<std::size_t>(i * l.n + j)] = result[static_cast<std::size_t>(j * l.m + i)];
  }

  static constexpr std::string_view kGradientDocumentation =
      "dA' = alpha dY transpose(B'), dB' = alpha transpose(A') dY, dC = beta dY summed where C was broadcast; alpha "
      "and beta multiply the sums, their terms or an operand, alpha dY above all, which can overflow where they do "
      "not.";

  static std::vector<std::string_view> gradient_formulas() {
    return {"sums scaled", "terms scaled", "cotangent scaled"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    using Exact = typename GradientFrame<T>::Exact;
    const Call& call = frame.call();
    const Layout l = *layout_of(call);
    const auto a = frame.input(0), b = frame.input(1), dy = frame.cotangent();
    const bool trans_a = call.integer("transA", 0) != 0, trans_b = call.integer("transB", 0) != 0;
    const bool scales = call.real("alpha", 1) != 1, scales_c = call.real("beta", 1) != 1;
    const T alpha = factor<T>(call, "alpha", 0), beta = factor<T>(call, "beta", 1);
    const auto multiply = [&](const ProductShape& shape, const std::vector<Exact>& left,
                              const std::vector<Exact>& right, bool cotangent_first, std::span<T> out) {
      if (!scales || frame.formula() == 0) {
        batched_products(
            1, shape, [&](std::int64_t) { return std::pair<const Exact*, const Exact*>(left.data(), right.data()); },
            static_cast<const Exact*>(nullptr), out.data());
        if (scales)
          for (T& value : out) value = alpha * value;
        return;
      }
      parallel_for(shape.m, [&](std::int64_t i) {
        for (std::int64_t j = 0; j < shape.n; ++j) {
          Sum<T> sum;
          for (std::int64_t k = 0; k < shape.k; ++k) {
            const T first(left[static_cast<std::size_t>(i * shape.k + k)]),
                second(right[static_cast<std::size_t>(k * shape.n + j)]);
            sum.add(scaled_term(alpha, first, second, (frame.formula() == 2) != cotangent_first));
          }
          out[static_cast<std::size_t>(i * shape.n + j)] = sum.result();
        }
      });
    };
    const auto as_is = [](std::span<const Exact> x) { return std::vector<Exact>(x.begin(), x.end()); };
    if (frame.wants(0)) {
      if (trans_a)  // transpose(dA') = B' transpose(dY)
        multiply({l.k, l.m, l.n}, trans_b ? transposed(b.data(), l.n, l.k) : as_is(b), transposed(dy.data(), l.m, l.n),
                 false, frame.gradient(0));
      else
        multiply({l.m, l.k, l.n}, as_is(dy), trans_b ? as_is(b) : transposed(b.data(), l.k, l.n), true,
                 frame.gradient(0));
    }
    if (frame.wants(1)) {
      if (trans_b)  // transpose(dB') = transpose(dY) A'
        multiply({l.n, l.k, l.m}, transposed(dy.data(), l.m, l.n), trans_a ? transposed(a.data(), l.k, l.m) : as_is(a),
                 true, frame.gradient(1));
      else
        multiply({l.k, l.n, l.m}, trans_a ? as_is(a) : transposed(a.data(), l.m, l.k), as_is(dy), false,
                 frame.gradient(1));
    }
    if (!frame.wants(2)) return;
    const auto dc = frame.gradient(2);
    std::vector<Sum<T>> sums(dc.size());
    const bool broadcast = static_cast<std::int64_t>(dc.size()) != l.m * l.n;
    for (std::int64_t i = 0; i < l.m; ++i)
      for (std::int64_t j = 0; j < l.n; ++j) {
        const T term(dy[static_cast<std::size_t>(i * l.n + j)]);
        const auto at = static_cast<std::size_t>(i * l.c_strides[0] + j * l.c_strides[1]);
        if (!broadcast)
          dc[at] = scales_c ? beta * term : term;
        else
          sums[at].add(scales_c && frame.formula() != 0 ? beta * term : term);
      }
    for (std::size_t i = 0; broadcast && i < dc.size(); ++i)
      dc[i] = scales_c && frame.formula() == 0 ? beta * sums[i].result() : sums[i].result();
  }

  static Reduction gradient_reduction(const GradientCall& gradient, int which, std::int64_t index) {
    const Call& call = gradient.forward();
    const Layout l = *layout_of(call);
    const Tensor& dy = *gradient.cotangent(0);
    Reduction r;
    if (which == 2) {
      for (std::int64_t i = 0; i < l.m; ++i)
        for (std::int64_t j = 0; j < l.n; ++j)
          if (i * l.c_strides[0] + j * l.c_strides[1] == index) r.a.push_back(dy.at(i * l.n + j));
      r.extents = {static_cast<std::int64_t>(r.a.size())};
      r.factor = call.real("beta", 1);
      return r;
    }
    const bool trans = call.integer(which == 0 ? "transA" : "transB", 0) != 0;
    const std::int64_t columns = call.shape(which)[1], first = index / columns, second = index % columns;
    // Element (row, column) of dA' [m, k] or dB' [k, n].
    const std::int64_t row = trans ? second : first, column = trans ? first : second;
    const bool trans_a = call.integer("transA", 0) != 0, trans_b = call.integer("transB", 0) != 0;
    r.extents = {which == 0 ? l.n : l.m};
    for (std::int64_t s = 0; s < r.extents[0]; ++s)
      if (which == 0) {
        r.a.push_back(dy.at(row * l.n + s));
        r.b.push_back(call.tensor(1)->at(trans_b ? s * l.k + column : column * l.n + s));
      } else {
        r.a.push_back(call.tensor(0)->at(trans_a ? row * l.m + s : s * l.k + row));
        r.b.push_back(dy.at(s * l.n + column));
      }
    r.factor = call.real("alpha", 1);
    return r;
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    const Layout l = *layout_of(call);
    const std::int64_t i = index / l.n, j = index % l.n;
    const bool trans_a = call.integer("transA", 0) != 0, trans_b = call.integer("transB", 0) != 0;
    Reduction r;
    r.extents = {l.k};
    for (std::int64_t k = 0; k < l.k; ++k) {
      r.a.push_back(call.tensor(0)->at(trans_a ? k * l.m + i : i * l.k + k));
      r.b.push_back(call.tensor(1)->at(trans_b ? j * l.k + k : k * l.n + j));
    }
    r.factor = call.real("alpha", 1);
    r.has_bias = call.has(2);
    if (r.has_bias) r.bias = call.real("beta", 1) * call.tensor(2)->at(i * l.c_strides[0] + j * l.c_strides[1]);
    return r;
  }

  // A factor of zero whose operand is not read: that operand's NaN and infinities count as zeros.
  static std::vector<Convention> conventions(const Call& call) {
    std::vector<const Tensor*> inputs;
    std::vector<Tensor> zeros;
    zeros.reserve(3);
    for (int k = 0; k < call.input_count(); ++k) {
      inputs.push_back(call.tensor(k));
      if (!call.has(k) || !is_float(call.dtype(k)) || call.real(k < 2 ? "alpha" : "beta", 1) != 0) continue;
      const std::vector<double> values = call.tensor(k)->to_doubles();
      if (std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); })) continue;
      zeros.push_back(Tensor::zeros(call.dtype(k), call.shape(k)));
      inputs.back() = &zeros.back();
    }
    if (zeros.empty()) return {};
    return {{"operands of a zero factor are not read",
             values(gemm(), Call(call.node(), call.opset(), std::span<const Tensor* const>(inputs)))}};
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const bool is_long = rng.chance(0.08), integers = !is_float(c.dtype());
    std::int64_t m = c.extent(1, is_long ? 2 : 20), n = c.extent(1, is_long ? 4 : 50);
    const std::int64_t k = is_long ? rng.integer(1000, 20000) : c.extent(1, rng.chance(0.3) ? 400 : 40);
    while (m * n * k > 150000) (m > n ? m : n) = std::max<std::int64_t>((m > n ? m : n) / 2, 1);
    const bool trans_a = rng.chance(0.3), trans_b = rng.chance(0.5), plain = integers || rng.chance(0.3);
    const Shape a = trans_a ? Shape{k, m} : Shape{m, k}, b = trans_b ? Shape{n, k} : Shape{k, n};
    const int opset = std::max(c.opset(), integers ? 9 : 7);
    std::vector<std::optional<Tensor>> inputs{c.tensor(a), plain ? c.tensor(b) : c.weights(b, k)};
    if (opset < 11 || rng.chance(0.8)) {
      const Shape shapes[] = {{n}, {n}, {n}, {1, n}, {m, 1}, {m, n}, {m, n}, {1}, {1, 1}, {}};
      inputs.push_back(c.tensor(rng.pick(shapes)));
    }
    Sample s = c.make(kName, std::move(inputs));
    s.opset = opset;
    const auto draw = [&] {
      static constexpr float kFactors[] = {1, 2, -1, 0.5f, 3};
      const float known = rng.pick(kFactors);
      if (integers) return std::trunc(known);
      return rng.chance(0.5) ? known : static_cast<float>(rng.uniform(-3, 3));
    };
    if (rng.chance(0.4)) s.node.attributes["alpha"] = draw();
    if (rng.chance(0.4)) s.node.attributes["beta"] = draw();
    if (trans_a || rng.chance(0.3)) s.node.attributes["transA"] = std::int64_t{trans_a};
    if (trans_b || rng.chance(0.3)) s.node.attributes["transB"] = std::int64_t{trans_b};
    const bool weights = rng.chance(0.5);
    for (std::size_t i = 1; i < s.initialiser.size(); ++i) s.initialiser[i] = weights;
    return s;
  }

  static std::vector<Sample> refused() {
    const auto zeros = [](Shape shape, DType dtype = DType::f32) { return Tensor::zeros(dtype, std::move(shape)); };
    const Tensor a = zeros({2, 3}), b = zeros({3, 4});
    return {refused_sample(kName, {a, zeros({4, 3})}, {}, "rows"),
            refused_sample(kName, {a, b}, {{"transA", std::int64_t{1}}}, "transA"),
            refused_sample(kName, {a, b}, {{"transB", std::int64_t{1}}}, "transB"),
            refused_sample(kName, {a, b}, {{"transA", 1.0f}}, "transA"),
            refused_sample(kName, {a, b}, {{"alpha", std::int64_t{1}}}, "alpha"),
            refused_sample(kName, {a, b}, {{"broadcast", std::int64_t{1}}}, "broadcast"),
            refused_sample(kName, {zeros({1, 2, 3}), b}, {}, "dimensions"),
            refused_sample(kName, {a, zeros({3})}, {}, "dimensions"),
            refused_sample(kName, {a, b, zeros({3})}, {}, "C"),
            refused_sample(kName, {a, b, zeros({1, 2, 4})}, {}, "C"),
            refused_sample(kName, {zeros({1, 3}), b, zeros({2, 4})}, {}, "C"),
            refused_sample(kName, {a, zeros({3, 4}, DType::f64)}, {}, "type"),
            refused_sample(kName, {a, b}, {}, "C is missing", 9),
            refused_sample(kName, {zeros({2, 3}, DType::i32), zeros({3, 4}, DType::i32), zeros({4}, DType::i32)}, {},
                           "int32", 8),
            refused_sample(kName, {zeros({2, 3}, DType::i32), zeros({3, 4}, DType::i32)}, {{"alpha", 0.5f}}, "alpha"),
            refused_sample(kName, {a}, {}, "inputs")};
  }
};

}  // namespace

const MetaOperator& gemm() {
  static const MetaOperator op = describe<Gemm>();
  return op;
}

}  // namespace opdiff::operators
