#include <algorithm>
#include <limits>

#include "numerics/order.h"
#include "ops/convolution.h"
#include "ops/evaluate.h"
#include "ops/op.h"
#include "ops/rounded_scalar.h"

namespace opdiff::operators {
namespace {

struct ConvTranspose {
  static constexpr std::string_view kName = "ConvTranspose";
  static constexpr std::string_view kDocumentation =
      R"(Y[n, m, i] = B[m] + sum over c, k of X[n, c, o] W[c, m, k] where o s - p + k d = i

The gradient of a convolution by its input. X [N, C, spatial...], W [C, M/group, kernel...], optional B [M]; 1 to 3 spatial dimensions. Y has
s (X - 1) + output_padding + (kernel - 1) d + 1 - pads elements along each; what no tap reaches is B[m].

With output_shape, or with auto_pad = SAME_*, where Y is to have s X elements, the padding follows from the size: its odd element is at
the end with SAME_UPPER, else at the beginning (the text of opsets 1 and 11 once had it the other way round). It is never negative: a larger
output_shape goes on at the end, and with SAME_* and a stride beyond the kernel Y stays smaller, as ONNX's shape inference has it. The bias may be added last or be the start of the accumulation. Frameworks differ in the order of
summation, and in whether the products of each tap are added up in a tensor of the working format (col2im) or in one sum.)";
  static constexpr Arity kInputs{2, 3};

  static std::vector<AttributeSpec> attributes() {
    return {{"auto_pad", AttributeKind::text,
             "NOTSET (default), VALID, SAME_UPPER, SAME_LOWER; the last three without pads"},
            {"dilations", AttributeKind::integers, "one per spatial dimension, at least 1; default 1"},
            {"group", AttributeKind::integer, "number of groups; default 1; divides C"},
            {"kernel_shape", AttributeKind::integers, "must equal W's spatial shape; default: that shape"},
            {"output_padding", AttributeKind::integers,
             "added at the end of Y; below the stride or the dilation; default 0"},
            {"output_shape", AttributeKind::integers, "Y's spatial shape; pads then follow from it"},
            {"pads", AttributeKind::integers, "begins, then ends: what is cut off Y; default 0"},
            {"strides", AttributeKind::integers, "one per spatial dimension, at least 1; default 1"}};
  }
  static std::vector<std::string_view> formulas() { return {"bias added last", "bias added first"}; }
  static std::vector<int> product_inputs() { return {0, 1}; }

  static Expected<Window> window(const Call& call) {
    const Shape& x = call.shape(0);
    OPDIFF_TRY(const Shape kernel, convolution_kernel(call));
    return make_transposed_window(call, Shape(x.begin() + 2, x.end()), kernel);
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_TRY(const Window win, window(call));
    const Shape& x = call.shape(0);
    const Shape& w = call.shape(1);
    const std::int64_t group = call.integer("group", 1);
    if (w[0] != x[1])
      return make_error("W {} has {} input channels, X {} has {}", to_string(w), w[0], to_string(x), x[1]);
    if (x[1] % group != 0)
      return make_error("attribute 'group' is {}, which does not divide the {} channels of X {}", group, x[1],
                        to_string(x));
    OPDIFF_TRY(const std::int64_t channels, checked_element_count({w[1], group}));
    if (call.has(2) && call.shape(2) != Shape{channels})
      return make_error("B has shape {}, expected [{}]", to_string(call.shape(2)), channels);
    Shape y{x[0], channels};
    y.insert(y.end(), win.input.begin(), win.input.end());
    return Types{{call.dtype(0), y}};
  }

  // As the convolution whose gradient this is: from Y to X.
  static Convolution geometry(const Call& call) {
    const Shape& w = call.shape(1);
    const std::int64_t group = call.integer("group", 1);
    return {*window(call), call.shape(0)[0], group, w[0] / group, w[1]};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    using Exact = typename Frame<T>::Exact;
    const Call& call = frame.call();
    const Convolution c = geometry(call);
    Shape shape{c.batch, c.group * c.depth};
    shape.insert(shape.end(), c.window.input.begin(), c.window.input.end());
    const auto bias = call.has(2) ? frame.input(2) : std::span<const Exact>();
    const bool bias_first = frame.formula() == 1;
    convolve_transposed<T>(c, frame.input(0), frame.input(1), bias_first ? bias : std::span<const Exact>(),
                           [&](std::int64_t count, const auto& fill) {
                             frame.output_pieces(0, shape, count, [&](std::int64_t i, std::span<T> piece) {
                               fill(i, piece);
                               const auto first = static_cast<std::size_t>(i % c.group * c.depth),
                                          own = static_cast<std::size_t>(c.depth);
                               if (!bias.empty() && !bias_first)
                                 add_to_channels(c.plane(), bias.subspan(first, own), piece);
                             });
                           });
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dX[n, c, o] = sum over m, k of dY[n, m, o s - p + k d] W[c, m, k], a convolution
dW[c, m, k] = sum over n, o of X[n, c, o] dY[n, m, o s - p + k d]
dB[m] = sum over n, i of dY[n, m, i]
dW of 16-bit tensors may be added up image by image, each sum stored (torch's convolutions of volumes).)";
  static std::vector<std::string_view> gradient_formulas() { return {"one sum", "each image's sum stored"}; }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    using Exact = typename GradientFrame<T>::Exact;
    const Convolution c = geometry(frame.call());
    const auto dy = frame.cotangent();
    if (frame.wants(0))

      convolve<T>(c, dy, frame.input(1), std::span<const Exact>(), std::span<const Exact>(),
                  [&](std::int64_t count, const auto& fill) { frame.gradient_pieces(0, count, fill); });
    if (frame.wants(1)) {
      const DType storage = frame.call().dtype(0);
      if (frame.formula() == 1 && profiles_differ(storage))
        add_image_by_image(c, frame.input(0), dy, storage, frame.gradient(1));
      else
        convolve_weights(c, frame.input(0), dy, frame.gradient(1));
    }
    if (frame.wants(2)) sum_channels(c.batch, c.plane(), dy, frame.gradient(2));
  }

  template <class Exact, class T>
  static void add_image_by_image(const Convolution& c, std::span<const Exact> x, std::span<const Exact> dy,
                                 DType storage, std::span<T> dw) {
    Convolution image = c;
    image.batch = 1;
    const auto count = static_cast<std::size_t>(c.batch);
    const std::size_t inputs = x.size() / std::max<std::size_t>(count, 1),
                      outputs = dy.size() / std::max<std::size_t>(count, 1);
    std::vector<T> sum(dw.size());
    for (std::size_t n = 0; n < count; ++n) {
      convolve_weights(image, x.subspan(n * inputs, inputs), dy.subspan(n * outputs, outputs), std::span<T>(sum));
      for (std::size_t i = 0; i < dw.size(); ++i) dw[i] = stored(n == 0 ? sum[i] : dw[i] + sum[i], storage);
    }
  }

  static Reduction gradient_reduction(const GradientCall& gradient, int which, std::int64_t index) {
    const Call& call = gradient.forward();
    const Tensor& dy = *gradient.cotangent(0);
    if (which == 2) return channel_terms(dy, index);
    return which == 0 ? convolve_terms(geometry(call), dy, *call.tensor(1), index)
                      : convolve_weights_terms(geometry(call), *call.tensor(0), dy, index);
  }

  static Reduction reduction(const Call& call, int, std::int64_t index) {
    const Convolution c = geometry(call);
    Reduction r = convolve_transposed_terms(c, *call.tensor(0), *call.tensor(1), index);
    r.has_bias = call.has(2);
    if (r.has_bias) r.bias = call.tensor(2)->at(index / c.plane() % (c.group * c.depth));
    return r;
  }

  static std::vector<NamedAlgorithm> algorithms(const Call& call) {
    if (format_of(call.dtype(0)).digits >= 24) return {};
    return {
        {fmt::format("taps added in {} (col2im)", dtype_name(call.dtype(0))),
         [&call](const Profile&) { return std::vector<EnclosedTensor>{TapByTap(call).enclose()}; },
         [&call](const Profile&, std::int64_t index, int variant) { return TapByTap(call).emulate(index, variant); }}};
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const auto rank = static_cast<std::size_t>(rng.chance(0.6) ? 2 : rng.integer(1, 3));
    const std::int64_t group = rng.chance(0.7) ? 1 : c.extent(2, 4);
    const std::int64_t channels = c.extent(1, rng.chance(0.2) ? 40 : 8), outputs = c.extent(1, 8);
    const bool auto_pad = rng.chance(0.2), by_shape = rng.chance(0.2);
    Shape x{c.extent(1, 3), channels * group}, w{channels * group, outputs}, kernel, pads, strides, dilations;
    Shape output_padding, output_shape;
    for (std::size_t d = 0; d < rank; ++d) {
      kernel.push_back(rng.chance(0.4) ? 3 : c.extent(1, 5));
      dilations.push_back(rng.chance(0.8) ? 1 : c.extent(1, 3));
      strides.push_back(rng.chance(0.4) ? 1 : c.extent(1, 3));
      x.push_back(c.extent(1, rank == 3 ? 5 : 10));
      w.push_back(kernel[d]);
      output_padding.push_back(rng.chance(0.6) ? 0 : rng.integer(0, std::max(strides[d], dilations[d]) - 1));
    }
    for (std::size_t d = 0; d < 2 * rank; ++d)
      pads.push_back(rng.chance(0.4) ? 0 : rng.integer(0, kernel[d % rank] - 1));
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t whole = (x[d + 2] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 + output_padding[d];
      while (whole - pads[d] - pads[d + rank] < 1) --(pads[d] > pads[d + rank] ? pads[d] : pads[d + rank]);
      output_shape.push_back(std::max<std::int64_t>(whole + rng.integer(-kernel[d], 2), 1));
    }
    std::vector<std::optional<Tensor>> inputs{c.tensor(x), c.weights(w, channels * element_count(kernel))};
    if (rng.chance(0.6)) inputs.push_back(c.tensor({outputs * group}));
    Sample s = c.make(kName, std::move(inputs));
    if (c.dtype() == DType::bf16) s.opset = std::max(s.opset, 22);
    auto& attributes = s.node.attributes;
    if (rng.chance(0.7)) attributes["kernel_shape"] = kernel;
    if (group > 1 || rng.chance(0.3)) attributes["group"] = group;
    if (strides != Shape(rank, 1) || rng.chance(0.5)) attributes["strides"] = strides;
    if (dilations != Shape(rank, 1) || rng.chance(0.5)) attributes["dilations"] = dilations;
    if (output_padding != Shape(rank, 0)) attributes["output_padding"] = output_padding;
    if (by_shape) attributes["output_shape"] = output_shape;
    if (auto_pad)
      attributes["auto_pad"] = std::string(rng.pick(std::vector<const char*>{"SAME_UPPER", "SAME_LOWER", "VALID"}));
    else if (rng.chance(0.7))
      attributes["pads"] = pads;
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = rng.chance(0.5) || k == 2;
    if (s.initialiser.size() > 2) s.initialiser[2] = s.initialiser[1];
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {1, 4, 5, 5}), w = Tensor::zeros(DType::f32, {4, 2, 3, 3});
    const auto refuse = [&](std::map<std::string, Attribute> attributes, std::string why) {
      return refused_sample(kName, {x, w}, std::move(attributes), std::move(why));
    };
    return {refuse({{"group", std::int64_t{3}}}, "group"),
            refuse({{"group", std::int64_t{0}}}, "group"),
            refuse({{"group", std::numeric_limits<std::int64_t>::max()}}, "group"),
            refuse({{"strides", Shape{0, 1}}}, "strides"),
            refuse({{"strides", Shape{1}}}, "strides"),
            refuse({{"dilations", Shape{1}}}, "dilations"),
            refuse({{"pads", Shape{1, 1}}}, "pads"),
            refuse({{"pads", Shape{0, 0, 0, -1}}}, "pads"),
            refuse({{"pads", Shape{4, 0, 3, 0}}}, "leaves nothing"),
            refuse({{"pads", Shape{1, 1, 1, 1}}, {"auto_pad", std::string("SAME_UPPER")}}, "auto_pad"),
            refuse({{"auto_pad", std::string("SAME")}}, "auto_pad"),
            refuse({{"kernel_shape", Shape{2, 2}}}, "kernel_shape"),
            refuse({{"output_padding", Shape{1, 0}}}, "output_padding"),
            refuse({{"output_padding", Shape{0}}}, "output_padding"),
            refuse({{"output_padding", Shape{0, -1}}}, "output_padding"),
            refuse({{"output_shape", Shape{7}}}, "output_shape"),
            refuse({{"output_shape", Shape{1, 2, 7, 7}}}, "output_shape"),
            refuse({{"output_shape", Shape{0, 7}}}, "output_shape"),
            refuse({{"kernel", Shape{3, 3}}}, "kernel"),
            refused_sample(kName, {x, Tensor::zeros(DType::f32, {2, 4, 3, 3})}, {}, "channels"),
            refused_sample(kName, {x, Tensor::zeros(DType::f64, {4, 2, 3, 3})}, {}, "type"),
            refused_sample(kName, {x, Tensor::zeros(DType::f32, {4, 2, 3})}, {}, "dimensions"),
            refused_sample(kName, {x, w, Tensor::zeros(DType::f32, {4})}, {}, "B"),
            refused_sample(kName, {Tensor::zeros(DType::f32, {1, 4, 0, 5}), w}, {}, "at least 1"),
            refused_sample(kName, {Tensor::zeros(DType::bf16, {1, 4, 5, 5}), Tensor::zeros(DType::bf16, {4, 2, 3, 3})},
                           {}, "bfloat16", 21),
            refused_sample(kName, {Tensor::zeros(DType::i32, {1, 4, 5, 5}), w}, {}, "type")};
  }

 private:
  // In 16-bit storage one product for each tap, over the channels in float, stored, and the stored ones added in
  // storage: what torch does where oneDNN does not serve it.
  class TapByTap {
   public:
    explicit TapByTap(const Call& call)
        : call_(call), products_(inner_f32(call.dtype(0))), sums_(inner_storage(call.dtype(0))) {
      sums_.sum = sums_.storage;
    }

    EnclosedTensor enclose() const {
      const Types types = *infer(call_);
      const Shape& shape = *types[0].shape;
      std::vector<Enclosure<double>> values;
      for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(enclosed(i));
      return finish(values, types[0].dtype, shape, sums_);
    }

    // Variants: the taps first to last, last to first, then shuffled; each with and without fused products.
    double emulate(std::int64_t index, int variant) const {
      const Reduction r = reduction(call_, 0, index);
      const std::int64_t taps = element_count(r.extents) / r.extents[0];
      std::vector<double> terms;
      for (std::int64_t k = 0; k < taps; ++k) {
        const auto [a, b] = of_tap(r, k, taps);
        terms.push_back(
            round_to(sum_in_order(a, b, {SumOrder::Kind::sequential, 1, variant % 2 != 0, 0}, kF32), sums_.storage));
      }
      if (r.has_bias) terms.push_back(r.bias);
      const SumOrder::Kind kinds[] = {SumOrder::Kind::sequential, SumOrder::Kind::reversed};
      const auto kind = variant < 4 ? kinds[variant / 2] : SumOrder::Kind::shuffled;
      return sum_in_order(terms, {}, {kind, 1, false, static_cast<std::uint64_t>(variant)}, sums_.storage);
    }

   private:
    static std::pair<std::vector<double>, std::vector<double>> of_tap(const Reduction& r, std::int64_t k,
                                                                      std::int64_t taps) {
      std::pair<std::vector<double>, std::vector<double>> terms;
      for (auto at = static_cast<std::size_t>(k); at < r.a.size(); at += static_cast<std::size_t>(taps)) {
        terms.first.push_back(r.a[at]);
        terms.second.push_back(r.b[at]);
      }
      return terms;
    }

    Enclosure<double> enclosed(std::int64_t index) const {
      const Reduction r = reduction(call_, 0, index);
      const std::int64_t taps = element_count(r.extents) / r.extents[0];
      Sum<Enclosure<double>> sum;
      for (std::int64_t k = 0; k < taps; ++k) {
        const auto [a, b] = of_tap(r, k, taps);
        Enclosure<double> product;
        {
          const ProfileScope scope(products_);
          products({1, 1, r.extents[0]}, a.data(), b.data(), nullptr, &product);
        }
        const ProfileScope scope(sums_);
        sum.add(product * Enclosure<double>(1));  // stored
      }
      const ProfileScope scope(sums_);
      if (r.has_bias) sum.add(Enclosure<double>(r.bias));
      return sum.result();
    }

    const Call& call_;
    Profile products_, sums_;
  };
};

}  // namespace

const MetaOperator& conv_transpose() {
  static const MetaOperator op = describe<ConvTranspose>();
  return op;
}

}  // namespace opdiff::operators
