#include "ops/matrix.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

// Y as numpy.matmul sees it: batches of [m, k] x [k, n].
struct Layout {
  Shape batch, a_strides, b_strides, shape;  // strides: of the batch axes, in matrices
  std::int64_t m = 1, k = 1, n = 1;

  std::pair<std::int64_t, std::int64_t> operands(std::int64_t index) const {
    std::int64_t a = 0, b = 0;
    for (std::size_t d = batch.size(); d-- > 0;) {
      a += index % batch[d] * a_strides[d];
      b += index % batch[d] * b_strides[d];
      index /= batch[d];
    }
    return {a, b};
  }
};

Expected<Layout> layout_of(const Call& call) {
  Shape a = call.shape(0), b = call.shape(1);
  if (a.empty() || b.empty())
    return make_error("A {} and B {}: a scalar has no product axis, expected at least 1 dimension each", to_string(a),
                      to_string(b));
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  Layout l;
  l.m = a[a.size() - 2];
  l.k = a.back();
  l.n = b.back();
  if (b[b.size() - 2] != l.k)
    return make_error("A {} has {} columns, B {} has {} rows", to_string(call.shape(0)), l.k, to_string(call.shape(1)),
                      b[b.size() - 2]);
  const Shape a_batch(a.begin(), a.end() - 2), b_batch(b.begin(), b.end() - 2);
  const auto batch = broadcast_shapes(a_batch, b_batch);
  if (!batch)
    return make_error("A {} and B {}: {}", to_string(call.shape(0)), to_string(call.shape(1)), batch.error().message);
  l.batch = *batch;
  l.a_strides = broadcast_strides(a_batch, l.batch);
  l.b_strides = broadcast_strides(b_batch, l.batch);
  l.shape = l.batch;
  if (!row) l.shape.push_back(l.m);
  if (!column) l.shape.push_back(l.n);
  return l;
}

struct MatMul {
  static constexpr std::string_view kName = "MatMul";
  static constexpr std::string_view kDocumentation = R"(Y = A B, as numpy.matmul

The last two axes are matrices, the others are broadcast batches; a one-dimensional A is a row and a one-dimensional B a column whose axis
the result does not have. Integers (32 and 64 bits, opset 9) wrap around. An empty product axis gives zeros. Frameworks differ in the order
of summation and in the format of the operands (tf32, bfloat16).)";
  static constexpr Arity kInputs{2, 2};
  static constexpr TypeSet kTypes =
      kFloatTypes | type_bit(DType::i32) | type_bit(DType::i64) | type_bit(DType::u32) | type_bit(DType::u64);
  static constexpr bool kIntegers = true;

  static std::vector<int> product_inputs() { return {0, 1}; }

  static Expected<Types> infer(const Call& call) {
    const DType dtype = call.dtype(0);
    const int since = dtype == DType::bf16 ? 13 : is_float(dtype) ? 1 : 9;
    if (call.opset() < since)
      return make_error("A has type {}, which the operator takes from opset {} on (opset {})", dtype_name(dtype), since,
                        call.opset());
    if (call.dtype(1) != dtype)
      return make_error("B has type {}, A has type {}", dtype_name(call.dtype(1)), dtype_name(dtype));
    OPDIFF_TRY(const Layout l, layout_of(call));
    return Types{{dtype, l.shape}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    using Exact = typename Frame<T>::Exact;
    const Layout l = *layout_of(frame.call());
    const auto y = frame.output(0, l.shape);
    const auto a = frame.input(0), b = frame.input(1);
    batched_products(
        element_count(l.batch), {l.m, l.n, l.k},
        [&](std::int64_t index) {
          const auto [i, j] = l.operands(index);
          return std::pair<const Exact*, const Exact*>(a.data() + i * l.m * l.k, b.data() + j * l.k * l.n);
        },
        static_cast<const Exact*>(nullptr), y.data());
  }

  static constexpr std::string_view kGradientDocumentation =
      "dA = dY transpose(B), dB = transpose(A) dY for each batch, added up where an operand was broadcast: product by "
      "product, or in one long sum.";

  static std::vector<std::string_view> gradient_formulas() { return {"batches added up", "one sum over the batches"}; }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    using Exact = typename GradientFrame<T>::Exact;
    const Layout l = *layout_of(frame.call());
    const auto a = frame.input(0), b = frame.input(1), dy = frame.cotangent();
    const std::int64_t batches = element_count(l.batch);
    for (int which = 0; which < 2; ++which) {
      if (!frame.wants(which)) continue;
      const auto out = frame.gradient(which);
      const std::int64_t size = which == 0 ? l.m * l.k : l.k * l.n;
      // The batches that each of the operand's own matrices was used in.
      std::vector<std::vector<std::int64_t>> users(
          static_cast<std::size_t>(size == 0 ? 0 : static_cast<std::int64_t>(out.size()) / size));
      for (std::int64_t index = 0; index < batches && !users.empty(); ++index) {
        const auto [i, j] = l.operands(index);
        users[static_cast<std::size_t>(which == 0 ? i : j)].push_back(index);
      }
      for (std::size_t u = 0; u < users.size(); ++u) {
        T* result = out.data() + static_cast<std::int64_t>(u) * size;
        const auto count = static_cast<std::int64_t>(users[u].size());
        if (count == 0) continue;
        // Left and right operands of the products, one after the other along the summed axis.
        const std::int64_t summed = which == 0 ? l.n : l.m, rows = which == 0 ? l.m : l.k,
                           columns = which == 0 ? l.k : l.n;
        std::vector<Exact> left(static_cast<std::size_t>(rows * summed * count));
        std::vector<Exact> right(static_cast<std::size_t>(summed * count * columns));
        const auto fill = [&](std::int64_t batch, std::int64_t place, std::int64_t stride) {
          const auto [i, j] = l.operands(batch);
          const Exact* cotangent = dy.data() + batch * l.m * l.n;
          for (std::int64_t s = 0; s < summed; ++s) {
            for (std::int64_t r = 0; r < rows; ++r)
              left[static_cast<std::size_t>(r * stride + place + s)] =
                  which == 0 ? cotangent[r * l.n + s] : a[static_cast<std::size_t>((i * l.m + s) * l.k + r)];
            for (std::int64_t c = 0; c < columns; ++c)
              right[static_cast<std::size_t>((place + s) * columns + c)] =
                  which == 0 ? b[static_cast<std::size_t>((j * l.k + c) * l.n + s)] : cotangent[s * l.n + c];
          }
        };
        if (count == 1 || frame.formula() == 1) {
          for (std::int64_t t = 0; t < count; ++t)
            fill(users[u][static_cast<std::size_t>(t)], t * summed, summed * count);
          products({rows, columns, summed * count}, left.data(), right.data(), static_cast<const Exact*>(nullptr),
                   result);
          continue;
        }
        std::vector<Sum<T>> sums(static_cast<std::size_t>(size));
        std::vector<T> product(static_cast<std::size_t>(size));
        for (const std::int64_t batch : users[u]) {
          fill(batch, 0, summed);
          products({rows, columns, summed}, left.data(), right.data(), static_cast<const Exact*>(nullptr),
                   product.data());
          for (std::size_t e = 0; e < sums.size(); ++e) sums[e].add(product[e]);
        }
        for (std::size_t e = 0; e < sums.size(); ++e) result[e] = sums[e].result();
      }
    }
  }

  static Reduction gradient_reduction(const GradientCall& gradient, int which, std::int64_t index) {
    const Layout l = *layout_of(gradient.forward());
    const Tensor &a = *gradient.forward().tensor(0), &b = *gradient.forward().tensor(1), &dy = *gradient.cotangent(0);
    const std::int64_t columns = which == 0 ? l.k : l.n, size = which == 0 ? l.m * l.k : l.k * l.n;
    const std::int64_t row = index / columns % (size / columns), column = index % columns;
    Reduction r;
    std::int64_t users = 0;
    for (std::int64_t batch = 0; batch < element_count(l.batch); ++batch) {
      const auto [i, j] = l.operands(batch);
      if ((which == 0 ? i : j) != index / size) continue;
      ++users;
      for (std::int64_t s = 0; s < (which == 0 ? l.n : l.m); ++s) {
        r.a.push_back(which == 0 ? dy.at((batch * l.m + row) * l.n + s) : a.at((i * l.m + s) * l.k + row));
        r.b.push_back(which == 0 ? b.at((j * l.k + column) * l.n + s) : dy.at((batch * l.m + s) * l.n + column));
      }
    }
    r.extents = {users, which == 0 ? l.n : l.m};
    return r;
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    const Layout l = *layout_of(call);
    const auto [i, j] = l.operands(index / (l.m * l.n));
    const std::int64_t row = index / l.n % l.m, column = index % l.n;
    Reduction r;
    r.extents = {l.k};
    for (std::int64_t k = 0; k < l.k; ++k) {
      r.a.push_back(call.tensor(0)->at((i * l.m + row) * l.k + k));
      r.b.push_back(call.tensor(1)->at((j * l.k + k) * l.n + column));
    }
    return r;
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const bool is_long = rng.chance(0.08);
    std::int64_t m = c.extent(1, is_long ? 2 : 20), n = c.extent(1, is_long ? 4 : 40);
    const std::int64_t k = is_long ? rng.integer(1000, 20000) : c.extent(1, rng.chance(0.3) ? 200 : 40);
    Shape a_batch, b_batch;
    const std::int64_t batches = is_long ? 0 : rng.integer(0, rng.chance(0.6) ? 1 : 3);
    for (std::int64_t d = 0; d < batches; ++d) {
      const std::int64_t extent = c.extent(1, 3);
      a_batch.push_back(rng.chance(0.8) ? extent : 1);
      b_batch.push_back(rng.chance(0.8) ? extent : 1);
    }
    const auto drop = [&](Shape& batch) {  // broadcasting from fewer axes
      if (rng.chance(0.3))
        batch.erase(batch.begin(), batch.begin() + rng.integer(0, static_cast<std::int64_t>(batch.size())));
    };
    rng.chance(0.5) ? drop(a_batch) : drop(b_batch);
    while (m * n * k * (std::int64_t{1} << batches) > 150000)
      (m > n ? m : n) = std::max<std::int64_t>((m > n ? m : n) / 2, 1);
    Shape a = a_batch, b = b_batch;
    const bool row = rng.chance(0.1), column = rng.chance(0.1);
    a.insert(a.end(), {m, k});
    b.insert(b.end(), {k, n});
    if (row) a = {k};
    if (column) b = {k};
    const bool plain = !is_float(c.dtype()) || rng.chance(0.4);
    Sample s = c.make(kName, {c.tensor(a), plain ? c.tensor(b) : c.weights(b, k)});
    s.opset = std::max(s.opset, is_float(c.dtype()) ? 7 : 9);
    s.initialiser[1] = rng.chance(0.4);
    return s;
  }

  static std::vector<Sample> refused() {
    const auto zeros = [](Shape shape, DType dtype = DType::f32) { return Tensor::zeros(dtype, std::move(shape)); };
    return {refused_sample(kName, {zeros({2, 3}), zeros({2, 3})}, {}, "rows"),
            refused_sample(kName, {zeros({}), zeros({2, 3})}, {}, "scalar"),
            refused_sample(kName, {zeros({2, 4, 3}), zeros({3, 3, 4})}, {}, "broadcast"),
            refused_sample(kName, {zeros({2, 3}), zeros({3, 2}, DType::f64)}, {}, "type"),
            refused_sample(kName, {zeros({2, 3}, DType::i8), zeros({3, 2}, DType::i8)}, {}, "type"),
            refused_sample(kName, {zeros({2, 3}, DType::i32), zeros({3, 2}, DType::i32)}, {}, "int32", 8),
            refused_sample(kName, {zeros({2, 3}), zeros({3, 2})}, {{"transA", std::int64_t{1}}}, "transA"),
            refused_sample(kName, {zeros({2, 3})}, {}, "inputs")};
  }
};

}  // namespace

const MetaOperator& mat_mul() {
  static const MetaOperator op = describe<MatMul>();
  return op;
}

}  // namespace opdiff::operators
