#include <limits>

#include "numerics/parallel.h"
#include "ops/pool.h"

namespace opdiff::operators {
namespace {

// The least number of a type: what a maximum starts from.
double least(DType dtype, bool infinite) {
  if (dtype == DType::i8) return -128;
  if (dtype == DType::u8) return 0;
  return infinite ? -kInfinity : -format_of(dtype).max_finite();
}

struct MaxPool {
  static constexpr std::string_view kName = "MaxPool";
  static constexpr std::string_view kDocumentation =
      R"(Y[n, c, o] = max over k of X[n, c, o s - p + k d], over the positions inside X

X [N, C, spatial...], 1 to 3 spatial dimensions. Padding never wins, not even over negative infinity; a window wholly in the padding is
unspecified. Indices (optional) is the position of the maximum in the whole of X, flat: row-major, or with storage_order = 1 column-major
within each plane; among equal maxima any one is right, an index is judged by the value it points to. NaN in a window: it propagates (here,
torch), or is ignored (onnxruntime), or counts only as a window's first element (ONNX's reference): conventions, as ONNX says nothing.
Sizes, ceil_mode and auto_pad as for AveragePool.
A real defect: onnxruntime (1.20 to 1.32 at least) leaves dilations out of the padding of auto_pad = SAME_UPPER and SAME_LOWER, so that its
output is smaller than ceil(input / stride) and than the shape that its own check expects; AveragePool too.)";
  static constexpr Arity kOutputs{1, 2};
  static constexpr TypeSet kTypes = kFloatTypes | type_bit(DType::i8) | type_bit(DType::u8);
  static constexpr bool kIntegers = true;

  static std::vector<AttributeSpec> attributes() {
    return {{"auto_pad", AttributeKind::text, "NOTSET (default), VALID, SAME_UPPER, SAME_LOWER"},
            {"ceil_mode", AttributeKind::integer, "1: round the output size up; default 0", 10},
            {"dilations", AttributeKind::integers, "one per spatial dimension, at least 1; default 1", 10},
            {"kernel_shape", AttributeKind::integers, "required, at least 1 each"},
            {"pads", AttributeKind::integers, "begins, then ends; default 0"},
            {"storage_order", AttributeKind::integer, "of Indices: 0 row-major (default), 1 column-major", 8},
            {"strides", AttributeKind::integers, "one per spatial dimension, at least 1; default 1"}};
  }

  static Expected<Types> infer(const Call& call) {
    const DType dtype = call.dtype(0);
    const int since = dtype == DType::bf16 ? 22 : is_float(dtype) ? 1 : 12;
    if (call.opset() < since)
      return make_error("X has type {}, which the operator takes from opset {} on (opset {})", dtype_name(dtype), since,
                        call.opset());
    if (call.wants(1) && call.opset() < 8)
      return make_error("output Indices exists from opset 8 on (opset {})", call.opset());
    if (const std::int64_t order = call.integer("storage_order", 0); order != 0 && order != 1)
      return make_error("attribute 'storage_order' is {}, expected 0 or 1", order);
    OPDIFF_TRY(const Window window, pool_window(call));
    Types types{{dtype, pool_shape(call, window)}};
    if (call.wants(1)) types.push_back({DType::i64, types[0].shape});
    return types;
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const Window window = *pool_window(call);
    const std::int64_t plane = element_count(window.input), outputs = window.output_size();
    const auto y = frame.output(0, pool_shape(call, window));
    const auto x = frame.input(0);
    using Exact = typename Frame<T>::Exact;
    const auto nothing = static_cast<Exact>(least(call.dtype(0), true));
    const Patches patches(window);
    parallel_for(call.shape(0)[0] * call.shape(0)[1], [&](std::int64_t p) {
      const Exact* source = x.data() + p * plane;
      for (std::int64_t o = 0; o < outputs; ++o) {
        Exact largest = nothing;
        for (const std::int64_t i : patches.of(o)) largest = maximum(largest, source[i]);
        y[static_cast<std::size_t>(p * outputs + o)] = T(largest);
      }
    });
  }

  // Index in X, row-major, of the maximum of each output element; -1 where the window is empty.
  static std::vector<std::int64_t> maxima(const Call& call, const Window& window) {
    const std::vector<double> x = call.tensor(0)->to_doubles();
    const std::int64_t plane = element_count(window.input), outputs = window.output_size();
    const Patches patches(window);
    std::vector<std::int64_t> best;
    best.reserve(static_cast<std::size_t>(element_count(pool_shape(call, window))));
    for (std::int64_t p = 0; p < call.shape(0)[0] * call.shape(0)[1]; ++p) {
      const double* source = x.data() + p * plane;
      for (std::int64_t o = 0; o < outputs; ++o) {
        std::int64_t at = -1;
        for (const std::int64_t i : patches.of(o))
          if (at < 0 || source[i] > source[at] || (source[i] != source[i] && source[at] == source[at])) at = i;
        best.push_back(at < 0 ? -1 : p * plane + at);
      }
    }
    return best;
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dX[n, c, i] = sum of dY[n, c, o] over the windows o whose maximum is at i

Among equal maxima the first takes all (here, torch, oneDNN); the last, or an equal share for each, is a convention: every convex
combination is a subgradient. A NaN is a maximum.)";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Call& call = frame.call();
    const Window window = *pool_window(call);
    const auto dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    const std::vector<std::int64_t> best = maxima(call, window);
    std::vector<Sum<T>> sums(dx.size());
    for (std::size_t o = 0; o < dy.size(); ++o)
      if (best[o] >= 0) sums[static_cast<std::size_t>(best[o])].add(T(dy[o]));
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = sums[i].result();
  }

  static std::vector<Convention> gradient_conventions(const GradientCall& gradient) {
    const Call& call = gradient.forward();
    const Tensor& x = *call.tensor(0);
    const Window window = *pool_window(call);
    const std::vector<double> dy = gradient.cotangent(0)->to_doubles();
    const std::int64_t plane = element_count(window.input);
    const std::vector<std::int64_t> maximum_of = maxima(call, window);
    std::vector<double> last(static_cast<std::size_t>(x.size())), shared = last;
    for (std::size_t o = 0; o < dy.size(); ++o) {
      const auto index = static_cast<std::int64_t>(o);
      const std::int64_t first = index / window.output_size() * plane, best = maximum_of[o];
      if (best < 0) continue;
      std::vector<std::size_t> equals;
      patch_at(window, index % window.output_size()).visit([&](std::int64_t i) {
        const double value = x.at(first + i), largest = x.at(best);
        if (value == largest || (value != value && largest != largest))
          equals.push_back(static_cast<std::size_t>(first + i));
      });
      last[equals.back()] += dy[o];
      for (const std::size_t i : equals) shared[i] += dy[o] / static_cast<double>(equals.size());
    }
    return {{"the last of equal maxima", {Tensor::from_doubles(x.dtype(), x.shape(), last)}},
            {"an equal share for equal maxima", {Tensor::from_doubles(x.dtype(), x.shape(), shared)}}};
  }

  // Row-major position in a plane -> the number that storage_order = 1 gives it.
  static std::int64_t column_major(const Window& window, std::int64_t position) {
    const Shape at = unravel(position, window.input);
    std::int64_t result = 0, scale = 1;
    for (std::size_t d = 0; d < at.size(); ++d) {
      result += at[d] * scale;
      scale *= window.input[d];
    }
    return result;
  }

  static Tensor integer_output(const Call& call, int) {
    const Window window = *pool_window(call);
    const Shape shape = pool_shape(call, window);
    const std::int64_t plane = element_count(window.input);
    const bool columns = call.integer("storage_order", 0) == 1;
    std::vector<std::int64_t> indices = maxima(call, window);
    for (std::int64_t& best : indices)
      if (columns && best >= 0) best = best / plane * plane + column_major(window, best % plane);
    return Tensor::from_int64s(DType::i64, shape, indices);
  }

  // Any position of the window that holds its maximum; with NaN in the window, also one of the largest number.
  static bool accepts_integer(const Call& call, int, std::int64_t index, std::int64_t value) {
    const Tensor& x = *call.tensor(0);
    const Window window = *pool_window(call);
    const std::int64_t plane = element_count(window.input), p = index / window.output_size();
    if (value < p * plane || value >= (p + 1) * plane) return false;
    std::int64_t rest = value - p * plane, position[3] = {0, 0, 0}, flat = 0;
    const std::size_t rank = window.input.size(), pad = 3 - rank;
    const bool columns = call.integer("storage_order", 0) == 1;
    for (std::size_t k = 0; k < rank; ++k) {
      const std::size_t d = columns ? k : rank - 1 - k;
      position[pad + d] = rest % window.input[d];
      rest /= window.input[d];
    }
    for (std::size_t d = 0; d < rank; ++d) flat = flat * window.input[d] + position[pad + d];
    const Patch patch = patch_at(window, index % window.output_size());
    if (!patch.contains(position)) return false;
    const double pointed = x.at(p * plane + flat);
    if (pointed != pointed) return true;
    bool largest = true;
    patch.visit([&](std::int64_t i) { largest = largest && !(x.at(p * plane + i) > pointed); });
    return largest;
  }

  static std::vector<bool> unspecified(const Call& call, int) { return windows_in_padding(call); }

  static std::vector<Convention> conventions(const Call& call) {
    const Tensor& x = *call.tensor(0);
    bool any = false;
    for (std::int64_t i = 0; is_float(x.dtype()) && i < x.size() && !any; ++i) any = x.at(i) != x.at(i);
    if (!any) return {};
    const Window window = *pool_window(call);
    const Shape shape = pool_shape(call, window);
    const std::int64_t plane = element_count(window.input);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    // Judged element by element: an implementation whose NaN counts only as a window's first element agrees with the
    // definition in some windows and with the first of these in the others.
    const auto ignoring = [&](std::string name, double only_nan) {
      std::vector<double> y(static_cast<std::size_t>(element_count(shape)));
      for (std::size_t o = 0; o < y.size(); ++o) {
        const auto index = static_cast<std::int64_t>(o);
        double largest = nan;
        patch_at(window, index % window.output_size()).visit([&](std::int64_t i) {
          const double v = x.at(index / window.output_size() * plane + i);
          if (v == v && !(v <= largest)) largest = v;
        });
        y[o] = largest == largest ? largest : only_nan;
      }
      return Convention{std::move(name), {Tensor::from_doubles(x.dtype(), shape, y)}};
    };
    return {ignoring("NaN is ignored", nan), ignoring("NaN is ignored, a window of NaN is -infinity", -kInfinity),
            ignoring("NaN is ignored, a window of NaN is the lowest finite number", least(x.dtype(), false))};
  }

  static Sample sample(SampleContext& c) {
    Sample s = pool_sample(c, kName, 10, false);
    if (s.opset >= 8 && c.rng().chance(0.3)) {
      s.node.outputs.push_back("y1");
      if (c.rng().chance(0.4)) s.node.attributes["storage_order"] = std::int64_t{c.rng().chance(0.7)};
    }
    return s;
  }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = pool_refused(kName);
    const Tensor x = Tensor::zeros(DType::f32, {1, 1, 4, 4});
    const Shape kernel{2, 2};
    samples.push_back(
        refused_sample(kName, {x}, {{"kernel_shape", kernel}, {"storage_order", std::int64_t{2}}}, "storage_order"));
    samples.push_back(refused_sample(kName, {x}, {{"kernel_shape", kernel}, {"count_include_pad", std::int64_t{1}}},
                                     "count_include_pad"));
    samples.push_back(
        refused_sample(kName, {Tensor::zeros(DType::u8, {1, 1, 4, 4})}, {{"kernel_shape", kernel}}, "uint8", 11));
    Sample indices = refused_sample(kName, {x}, {{"kernel_shape", kernel}}, "Indices", 7);
    indices.node.outputs.push_back("y1");
    samples.push_back(std::move(indices));
    return samples;
  }
};

}  // namespace

const MetaOperator& max_pool() {
  static const MetaOperator op = describe<MaxPool>();
  return op;
}

}  // namespace opdiff::operators
