#include <algorithm>
#include <limits>

#include "numerics/parallel.h"
#include "ops/op.h"
#include "ops/window.h"
#include "ops/winograd.h"

namespace opdiff::operators {
namespace {

struct Conv {
  static constexpr std::string_view kName = "Conv";
  static constexpr std::string_view kDocumentation =
      R"(Y[n, m, o] = B[m] + sum over c, k of X[n, g C/G + c, o s - p + k d] W[m, c, k]

X [N, C, spatial...], W [M, C/group, kernel...], optional B [M]; 1 to 3 spatial dimensions; cross-correlation (the kernel is
not flipped); positions in the padding count as zero. The bias may be added last or be the start of the accumulation: both are
admissible. Frameworks differ in the order of summation, in direct, im2col, Winograd and FFT algorithms, and (by default on some
hardware) in the format of the operands.)";
  static constexpr Arity kInputs{2, 3};

  static std::vector<AttributeSpec> attributes() {
    return {{"auto_pad", AttributeKind::text, "NOTSET (default), VALID, SAME_UPPER, SAME_LOWER"},
            {"dilations", AttributeKind::integers, "one per spatial dimension, at least 1; default 1"},
            {"group", AttributeKind::integer, "number of groups; default 1; divides C and M"},
            {"kernel_shape", AttributeKind::integers, "must equal W's spatial shape; default: that shape"},
            {"pads", AttributeKind::integers, "begins, then ends; default 0"},
            {"strides", AttributeKind::integers, "one per spatial dimension, at least 1; default 1"}};
  }
  static std::vector<std::string_view> formulas() { return {"bias added last", "bias added first"}; }
  static std::vector<int> product_inputs() { return {0, 1}; }

  static Expected<Window> window(const Call& call) {
    const Shape& x = call.shape(0);
    const Shape& w = call.shape(1);
    const Shape kernel(w.begin() + 2, w.end());
    if (const Shape declared = call.integers("kernel_shape", kernel); declared != kernel)
      return make_error("attribute 'kernel_shape' is {}, but W has the spatial shape {}", to_string(declared),
                        to_string(kernel));
    return make_window(call, Shape(x.begin() + 2, x.end()), kernel, false);
  }

  static Expected<Types> infer(const Call& call) {
    if (call.dtype(0) == DType::bf16 && call.opset() < 22)
      return make_error("X has type bfloat16, which the operator takes from opset 22 on (opset {})", call.opset());
    const Shape& x = call.shape(0);
    const Shape& w = call.shape(1);
    if (x.size() < 3 || x.size() > 5) return make_error("X has shape {}, expected 3 to 5 dimensions", to_string(x));
    if (w.size() != x.size())
      return make_error("W has shape {}, expected as many dimensions as X {}", to_string(w), to_string(x));
    const std::int64_t group = call.integer("group", 1);
    if (group < 1) return make_error("attribute 'group' is {}, expected at least 1", group);
    if (x[1] % group != 0 || x[1] / group != w[1])
      return make_error("W {} and group {} need {} input channels in each group, X {} has {} in all", to_string(w),
                        group, w[1], to_string(x), x[1]);
    if (w[0] % group != 0)
      return make_error("group {} does not divide the {} output channels of W {}", group, w[0], to_string(w));
    for (int k = 1; k < call.input_count(); ++k)
      if (call.has(k) && call.dtype(k) != call.dtype(0))
        return make_error("input {} has type {}, X has {}", k, dtype_name(call.dtype(k)), dtype_name(call.dtype(0)));
    if (call.has(2) && call.shape(2) != Shape{w[0]})
      return make_error("B has shape {}, expected [{}]", to_string(call.shape(2)), w[0]);
    OPDIFF_TRY(const Window win, window(call));
    Shape y{x[0], w[0]};
    y.insert(y.end(), win.output.begin(), win.output.end());
    return Types{{call.dtype(0), y}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    using Exact = typename Frame<T>::Exact;
    const Call& call = frame.call();
    const Window win = *window(call);
    const Shape& w = call.shape(1);
    const std::int64_t batch = call.shape(0)[0], channels = call.shape(0)[1], group = call.integer("group", 1);
    const std::int64_t rows = w[0] / group, taps = win.kernel_size(), depth = w[1] * taps, columns = win.output_size();
    const std::int64_t plane = element_count(win.input);
    Shape y{batch, w[0]};
    y.insert(y.end(), win.output.begin(), win.output.end());
    const auto out = frame.output(0, y);
    const auto x = frame.input(0), weights = frame.input(1);
    const auto bias = call.has(2) ? frame.input(2) : std::span<const Exact>();
    const std::vector<std::int64_t> table = tap_table(win);
    parallel_for(batch * group, [&](std::int64_t piece) {
      const std::int64_t n = piece / group, g = piece % group;
      std::vector<Exact> unfolded(static_cast<std::size_t>(depth * columns));
      for (std::int64_t c = 0; c < w[1]; ++c) {
        const Exact* source = x.data() + (n * channels + g * w[1] + c) * plane;
        for (std::int64_t i = 0; i < taps * columns; ++i)
          unfolded[static_cast<std::size_t>(c * taps * columns + i)] =
              table[static_cast<std::size_t>(i)] < 0 ? Exact(0) : source[table[static_cast<std::size_t>(i)]];
      }
      const bool bias_first = frame.formula() == 1 && !bias.empty();
      T* block = out.data() + (n * w[0] + g * rows) * columns;
      products({rows, columns, depth}, weights.data() + g * rows * depth, unfolded.data(),
               bias_first ? bias.data() + g * rows : nullptr, block);
      if (bias.empty() || bias_first) return;
      for (std::int64_t m = 0; m < rows; ++m)
        for (std::int64_t i = 0; i < columns; ++i)
          block[m * columns + i] = block[m * columns + i] + T(bias[static_cast<std::size_t>(g * rows + m)]);
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dX[n, c, i] = sum over m, k of dY[n, m, o] W[m, c, k] where o s - p + k d = i
dW[m, c, k] = sum over n, o of dY[n, m, o] X[n, c, o s - p + k d]
dB[m] = sum over n, o of dY[n, m, o])";

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    using Exact = typename GradientFrame<T>::Exact;
    const Call& call = frame.call();
    const Window win = *window(call);
    const Shape& w = call.shape(1);
    const std::int64_t batch = call.shape(0)[0], channels = call.shape(0)[1], group = call.integer("group", 1);
    const std::int64_t rows = w[0] / group, taps = win.kernel_size(), depth = w[1] * taps, columns = win.output_size();
    const std::int64_t plane = element_count(win.input);
    const auto x = frame.input(0), weights = frame.input(1), dy = frame.cotangent();
    const std::vector<std::int64_t> table = tap_table(win);
    if (frame.wants(0)) {
      const auto dx = frame.gradient(0);
      // Where tap k read input i for: output reader[k plane + i], or -1.
      std::vector<std::int64_t> reader(static_cast<std::size_t>(taps * plane), -1);
      for (std::int64_t k = 0; k < taps; ++k)
        for (std::int64_t o = 0; o < columns; ++o)
          if (const std::int64_t i = table[static_cast<std::size_t>(k * columns + o)]; i >= 0)
            reader[static_cast<std::size_t>(k * plane + i)] = o;
      parallel_for(batch * group, [&](std::int64_t piece) {
        const std::int64_t n = piece / group, g = piece % group;
        std::vector<Exact> turned(static_cast<std::size_t>(w[1] * rows * taps));
        std::vector<Exact> unfolded(static_cast<std::size_t>(rows * taps * plane));
        for (std::int64_t m = 0; m < rows; ++m) {
          const Exact* kernels = weights.data() + (g * rows + m) * depth;
          for (std::int64_t c = 0; c < w[1]; ++c)
            std::copy_n(kernels + c * taps, taps, turned.data() + (c * rows + m) * taps);
          const Exact* source = dy.data() + (n * w[0] + g * rows + m) * columns;
          for (std::int64_t i = 0; i < taps * plane; ++i)
            if (const std::int64_t o = reader[static_cast<std::size_t>(i)]; o >= 0)
              unfolded[static_cast<std::size_t>(m * taps * plane + i)] = source[o];
        }
        products({w[1], plane, rows * taps}, turned.data(), unfolded.data(), static_cast<const Exact*>(nullptr),
                 dx.data() + (n * channels + g * w[1]) * plane);
      });
    }
    if (frame.wants(1)) {
      const auto dw = frame.gradient(1);
      for (std::int64_t g = 0; g < group; ++g) {
        std::vector<Exact> cotangents(static_cast<std::size_t>(rows * batch * columns));
        std::vector<Exact> unfolded(static_cast<std::size_t>(batch * columns * depth));
        for (std::int64_t n = 0; n < batch; ++n) {
          for (std::int64_t m = 0; m < rows; ++m)
            std::copy_n(dy.data() + (n * w[0] + g * rows + m) * columns, columns,
                        cotangents.data() + (m * batch + n) * columns);
          for (std::int64_t c = 0; c < w[1]; ++c)
            for (std::int64_t k = 0; k < taps; ++k)
              for (std::int64_t o = 0; o < columns; ++o)
                if (const std::int64_t i = table[static_cast<std::size_t>(k * columns + o)]; i >= 0)
                  unfolded[static_cast<std::size_t>((n * columns + o) * depth + c * taps + k)] =
                      x[static_cast<std::size_t>((n * channels + g * w[1] + c) * plane + i)];
        }
        products({rows, depth, batch * columns}, cotangents.data(), unfolded.data(), static_cast<const Exact*>(nullptr),
                 dw.data() + g * rows * depth);
      }
    }
    if (call.has(2) && frame.wants(2)) {
      const auto db = frame.gradient(2);
      for (std::int64_t m = 0; m < w[0]; ++m) {
        Sum<T> sum;
        for (std::int64_t n = 0; n < batch; ++n)
          for (std::int64_t o = 0; o < columns; ++o)
            sum.add(T(dy[static_cast<std::size_t>((n * w[0] + m) * columns + o)]));
        db[static_cast<std::size_t>(m)] = sum.result();
      }
    }
  }

  static Reduction gradient_reduction(const GradientCall& gradient, int which, std::int64_t index) {
    const Call& call = gradient.forward();
    const Window win = *window(call);
    const Shape& w = call.shape(1);
    const Tensor &x = *call.tensor(0), &weights = *call.tensor(1), &dy = *gradient.cotangent(0);
    const std::int64_t batch = call.shape(0)[0], channels = call.shape(0)[1], rows = w[0] / call.integer("group", 1);
    const std::int64_t taps = win.kernel_size(), columns = win.output_size(), plane = element_count(win.input);
    Reduction r;
    if (which == 0) {
      const std::int64_t i = index % plane, c = index / plane % channels, n = index / plane / channels;
      const std::int64_t first = c / w[1] * rows;
      r.extents = {rows};
      r.extents.insert(r.extents.end(), win.kernel.begin(), win.kernel.end());
      const std::vector<std::int64_t> table = tap_table(win);
      for (std::int64_t m = first; m < first + rows; ++m)
        for (std::int64_t k = 0; k < taps; ++k) {
          const auto begin = table.begin() + k * columns;
          const std::int64_t o = std::find(begin, begin + columns, i) - begin;
          r.a.push_back(o == columns ? 0 : dy.at((n * w[0] + m) * columns + o));
          r.b.push_back(weights.at((m * w[1] + c % w[1]) * taps + k));
        }
      return r;
    }
    r.extents = {batch};
    r.extents.insert(r.extents.end(), win.output.begin(), win.output.end());
    const std::int64_t m = which == 1 ? index / (w[1] * taps) : index;
    const std::int64_t c = m / rows * w[1] + index / taps % w[1];
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t o = 0; o < columns; ++o) {
        r.a.push_back(dy.at((n * w[0] + m) * columns + o));
        if (which == 2) continue;
        const std::int64_t i = tap_at(win, o, index % taps).input;
        r.b.push_back(i < 0 ? 0 : x.at((n * channels + c) * plane + i));
      }
    return r;
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    const Window win = *window(call);
    const Shape& w = call.shape(1);
    const std::int64_t columns = win.output_size(), taps = win.kernel_size(), plane = element_count(win.input);
    const std::int64_t out = index % columns, m = index / columns % w[0], n = index / columns / w[0];
    const std::int64_t first = m / (w[0] / call.integer("group", 1)) * w[1];
    Reduction r;
    r.extents = {w[1]};
    r.extents.insert(r.extents.end(), win.kernel.begin(), win.kernel.end());
    for (std::int64_t c = 0; c < w[1]; ++c)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t position = tap_at(win, out, tap).input;
        r.a.push_back(position < 0 ? 0 : call.tensor(0)->at((n * call.shape(0)[1] + first + c) * plane + position));
        r.b.push_back(call.tensor(1)->at((m * w[1] + c) * taps + tap));
      }
    r.has_bias = call.has(2);
    if (r.has_bias) r.bias = call.tensor(2)->at(m);
    return r;
  }

  static std::vector<NamedAlgorithm> algorithms(const Call& call) { return winograd_algorithms(call, *window(call)); }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const auto rank = static_cast<std::size_t>(rng.chance(0.6) ? 2 : rng.integer(1, 3));
    const std::int64_t group = rng.chance(0.7) ? 1 : c.extent(2, 4);
    const std::int64_t depth = c.extent(1, rng.chance(0.2) ? 40 : 8), rows = c.extent(1, 8);
    Shape x{c.extent(1, 3), depth * group}, w{rows * group, depth}, kernel, pads, strides, dilations;
    for (std::size_t d = 0; d < rank; ++d) {
      kernel.push_back(rng.chance(0.4) ? 3 : c.extent(1, 5));
      dilations.push_back(rng.chance(0.8) ? 1 : c.extent(1, 3));
      strides.push_back(rng.chance(0.6) ? 1 : c.extent(1, 3));
      x.push_back((kernel[d] - 1) * dilations[d] + 1 + c.extent(0, rank == 3 ? 5 : 12));
      w.push_back(kernel[d]);
    }
    for (std::size_t d = 0; d < 2 * rank; ++d)
      pads.push_back(rng.chance(0.5) ? 0 : rng.integer(0, kernel[d % rank] - 1));
    std::vector<std::optional<Tensor>> inputs{c.tensor(x), c.weights(w, depth * element_count(kernel))};
    if (rng.chance(0.6)) inputs.push_back(c.tensor({rows * group}));
    Sample s = c.make(kName, std::move(inputs));
    if (c.dtype() == DType::bf16) s.opset = std::max(s.opset, 22);
    if (rng.chance(0.7)) s.node.attributes["kernel_shape"] = kernel;
    if (group > 1 || rng.chance(0.3)) s.node.attributes["group"] = group;
    if (rng.chance(0.8)) s.node.attributes["strides"] = strides;
    const bool auto_pad = rng.chance(0.2);
    if (!auto_pad || rng.chance(0.5)) s.node.attributes["dilations"] = dilations;
    if (auto_pad)
      s.node.attributes["auto_pad"] =
          std::string(rng.pick(std::vector<const char*>{"SAME_UPPER", "SAME_LOWER", "VALID"}));
    else if (rng.chance(0.8))
      s.node.attributes["pads"] = pads;
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = rng.chance(0.5) || k == 2;
    if (s.initialiser.size() > 2) s.initialiser[2] = s.initialiser[1];
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {1, 4, 5, 5}), w = Tensor::zeros(DType::f32, {2, 4, 3, 3});
    const auto refuse = [&](std::map<std::string, Attribute> attributes, std::string why) {
      return refused_sample(kName, {x, w}, std::move(attributes), std::move(why));
    };
    return {refuse({{"group", std::int64_t{3}}}, "group"),
            refuse({{"group", std::int64_t{0}}}, "group"),
            refuse({{"group", std::numeric_limits<std::int64_t>::max()}}, "group"),
            refuse({{"strides", Shape{0, 1}}}, "strides"),
            refuse({{"strides", Shape{1}}}, "strides"),
            refuse({{"dilations", Shape{4, 4}}}, "does not fit"),
            refuse({{"pads", Shape{1, 1}}}, "pads"),
            refuse({{"pads", Shape{0, 0, 0, -1}}}, "pads"),
            refuse({{"auto_pad", std::string("SAME")}}, "auto_pad"),
            refuse({{"kernel_shape", Shape{2, 2}}}, "kernel_shape"),
            refuse({{"kernel", Shape{3, 3}}}, "kernel"),
            refuse({{"strides", 1.5f}}, "strides"),
            refused_sample(kName, {x, Tensor::zeros(DType::f32, {2, 3, 3, 3})}, {}, "channels"),
            refused_sample(kName, {x, Tensor::zeros(DType::f64, {2, 4, 3, 3})}, {}, "type"),
            refused_sample(kName, {x, w, Tensor::zeros(DType::f32, {3})}, {}, "B"),
            refused_sample(kName, {Tensor::zeros(DType::bf16, {1, 4, 5, 5}), Tensor::zeros(DType::bf16, {2, 4, 3, 3})},
                           {}, "bfloat16", 21),
            refused_sample(kName, {Tensor::zeros(DType::i32, {1, 4, 5, 5}), w}, {}, "type")};
  }
};

}  // namespace

const MetaOperator& conv() {
  static const MetaOperator op = describe<Conv>();
  return op;
}

}  // namespace opdiff::operators
