#include "numerics/parallel.h"
#include "ops/pool.h"

namespace opdiff::operators {
namespace {

struct AveragePool {
  static constexpr std::string_view kName = "AveragePool";
  static constexpr std::string_view kDocumentation =
      R"(Y[n, c, o] = (sum over k of X[n, c, o s - p + k d]) / count(o)

X [N, C, spatial...], 1 to 3 spatial dimensions. Padding adds zero. count(o) is the number of window positions inside X or, with
count_include_pad = 1, inside X and its declared padding (that of `pads` or of `auto_pad`); positions that ceil_mode makes a last window
reach beyond that padding never count. A last window that would start beyond X and its begin padding is left out. A window wholly in the
padding is 0 / 0 without count_include_pad: unspecified. With auto_pad = VALID, ceil_mode rounds the output size up as with explicit
padding (ONNX's shape inference and onnxruntime; the formula in ONNX's text rounds down: microsoft/onnxruntime#10083). SAME padding is
never negative. Frameworks differ exactly here: in the divisor of
clipped windows, in which end padding they read when it is asymmetric, and in dividing, multiplying by the reciprocal or scaling each term.)";

  static std::vector<AttributeSpec> attributes() {
    return {{"auto_pad", AttributeKind::text, "NOTSET (default), VALID, SAME_UPPER, SAME_LOWER"},
            {"ceil_mode", AttributeKind::integer, "1: round the output size up; default 0", 10},
            {"count_include_pad", AttributeKind::integer, "1: padding counts in the divisor; default 0", 7},
            {"dilations", AttributeKind::integers, "one per spatial dimension, at least 1; default 1", 19},
            {"kernel_shape", AttributeKind::integers, "required, at least 1 each"},
            {"pads", AttributeKind::integers, "begins, then ends; default 0"},
            {"strides", AttributeKind::integers, "one per spatial dimension, at least 1; default 1"}};
  }
  static std::vector<std::string_view> formulas() {
    return {"sum divided by the count", "sum times the reciprocal of the count", "terms scaled before summing"};
  }

  static Expected<Types> infer(const Call& call) {
    if (call.dtype(0) == DType::bf16 && call.opset() < 22)
      return make_error("X has type bfloat16, which the operator takes from opset 22 on (opset {})", call.opset());
    OPDIFF_TRY(const Window window, pool_window(call));
    return Types{{call.dtype(0), pool_shape(call, window)}};
  }

  static std::int64_t divisor(const Call& call, const Patch& patch) {
    return call.integer("count_include_pad", 0) != 0 ? patch.declared : patch.size();
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const Window window = *pool_window(call);
    const std::int64_t plane = element_count(window.input), outputs = window.output_size();
    const auto y = frame.output(0, pool_shape(call, window));
    const auto x = frame.input(0);
    parallel_for(call.shape(0)[0] * call.shape(0)[1], [&](std::int64_t p) {
      const auto* source = x.data() + p * plane;
      for (std::int64_t o = 0; o < outputs; ++o) {
        const Patch patch = patch_at(window, o);
        const T count(static_cast<double>(divisor(call, patch)));
        const T reciprocal = T(1) / count;
        Sum<T> sum;
        patch.visit([&](std::int64_t i) { sum.add(frame.formula() == 2 ? T(source[i]) * reciprocal : T(source[i])); });
        const T total = sum.result();
        y[static_cast<std::size_t>(p * outputs + o)] = frame.formula() == 0   ? total / count
                                                       : frame.formula() == 1 ? total * reciprocal
                                                                              : total;
      }
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX[n, c, i] = sum over the windows o that hold i of dY[n, c, o] / count(o).";

  static std::vector<std::string_view> gradient_formulas() {
    return {"divided by the count", "times the reciprocal of the count"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Call& call = frame.call();
    const Window window = *pool_window(call);
    const std::int64_t plane = element_count(window.input), outputs = window.output_size();
    const auto dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    parallel_for(call.shape(0)[0] * call.shape(0)[1], [&](std::int64_t p) {
      std::vector<Sum<T>> sums(static_cast<std::size_t>(plane));
      for (std::int64_t o = 0; o < outputs; ++o) {
        const Patch patch = patch_at(window, o);
        const T count(static_cast<double>(divisor(call, patch))),
            cotangent(dy[static_cast<std::size_t>(p * outputs + o)]);
        const T term = frame.formula() == 0 ? cotangent / count : cotangent * (T(1) / count);
        patch.visit([&](std::int64_t i) { sums[static_cast<std::size_t>(i)].add(term); });
      }
      for (std::int64_t i = 0; i < plane; ++i)
        dx[static_cast<std::size_t>(p * plane + i)] = sums[static_cast<std::size_t>(i)].result();
    });
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    const Window window = *pool_window(call);
    const std::int64_t plane = element_count(window.input), out = index % window.output_size();
    const std::int64_t first = index / window.output_size() * plane;
    Reduction r;
    r.extents = window.kernel;
    for (std::int64_t tap = 0; tap < window.kernel_size(); ++tap) {
      const std::int64_t position = tap_at(window, out, tap).input;
      r.a.push_back(position < 0 ? 0 : call.tensor(0)->at(first + position));
    }
    r.divisor = static_cast<double>(divisor(call, patch_at(window, out)));
    return r;
  }

  static std::vector<bool> unspecified(const Call& call, int) {
    return call.integer("count_include_pad", 0) != 0 ? std::vector<bool>() : windows_in_padding(call);
  }

  static Sample sample(SampleContext& c) { return pool_sample(c, kName, 19, true); }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = pool_refused(kName);
    const Tensor x = Tensor::zeros(DType::f32, {1, 1, 4, 4});
    samples.push_back(
        refused_sample(kName, {x}, {{"kernel_shape", Shape{2, 2}}, {"dilations", Shape{1, 1}}}, "dilations", 18));
    samples.push_back(refused_sample(kName, {x}, {{"kernel_shape", Shape{2, 2}}, {"storage_order", std::int64_t{0}}},
                                     "storage_order"));
    return samples;
  }
};

}  // namespace

const MetaOperator& average_pool() {
  static const MetaOperator op = describe<AveragePool>();
  return op;
}

}  // namespace opdiff::operators
