// Conv, ConvTranspose and their gradients: the convolution and deconvolution primitives, in one to three spatial
// dimensions. Weights that are known are reordered once.
#include "../window.h"

namespace opdiff::onednn {
namespace {

struct Convolution {
  using Forward = dnnl::convolution_forward;
  using BackwardData = dnnl::convolution_backward_data;
  using BackwardWeights = dnnl::convolution_backward_weights;
  static constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  static constexpr bool kTransposed = false;
};

struct Deconvolution {
  using Forward = dnnl::deconvolution_forward;
  using BackwardData = dnnl::deconvolution_backward_data;
  using BackwardWeights = dnnl::deconvolution_backward_weights;
  static constexpr auto kAlgorithm = dnnl::algorithm::deconvolution_direct;
  static constexpr bool kTransposed = true;
};

// What is convolved, checked.
template <class Kind>
struct Problem {
  const Value& x;
  const Value& w;
  const Value* bias;
  Window window;
  Shape shape;          // of the result
  Dims weight_dims;     // groups in front, then channels of the result, channels of x, taps
  Dims weight_strides;  // ONNX has the channels of x before those of the result where the convolution is transposed

  Desc source_any() const { return any_layout(x.dtype, dims_of(x.shape)); }
  Desc weights_any() const { return any_layout(w.dtype, weight_dims); }
  Desc target_any() const { return any_layout(x.dtype, dims_of(shape)); }
  Desc weights() const { return Desc(weight_dims, *data_type(w.dtype), weight_strides); }
  Desc bias_layout() const { return dense(bias->dtype, bias->shape); }
  typename Kind::Forward::primitive_desc forward(dnnl::prop_kind kind,
                                                 const dnnl::primitive_attr& attributes = {}) const {
    using Description = typename Kind::Forward::primitive_desc;
    const Dims dilations = window.onednn_dilations();
    return bias ? Description(engine(), kind, Kind::kAlgorithm, source_any(), weights_any(), bias_layout(),
                              target_any(), window.strides, dilations, window.begin, window.end, attributes)
                : Description(engine(), kind, Kind::kAlgorithm, source_any(), weights_any(), target_any(),
                              window.strides, dilations, window.begin, window.end, attributes);
  }
};

template <class Kind>
Problem<Kind> problem_of(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  const Value& w = builder.floating(1);
  const std::size_t rank = x.shape.size();
  if (rank < 3 || w.shape.size() != rank) {
    throw std::invalid_argument("input of shape " + sdk::to_string(x.shape) + " and weights of shape " +
                                sdk::to_string(w.shape) + "; expected the same rank, at least 3");
  }
  if (rank > 5) throw sdk::Unsupported("oneDNN convolves in at most three spatial dimensions");
  if (w.dtype != x.dtype) throw std::invalid_argument("input and weights have different dtypes");
  const std::int64_t groups = builder.node().integer("group", 1);
  const bool fits = groups >= 1 && x.shape[1] % groups == 0 && w.shape[0] % groups == 0 &&
                    (Kind::kTransposed ? w.shape[0] == x.shape[1] : w.shape[1] == x.shape[1] / groups);
  if (!fits) {
    throw std::invalid_argument("group " + std::to_string(groups) + " does not fit an input of shape " +
                                sdk::to_string(x.shape) + " and weights of shape " + sdk::to_string(w.shape));
  }
  const std::int64_t channels = Kind::kTransposed ? groups * w.shape[1] : w.shape[0];
  const Value* bias = builder.has(2) ? &builder.floating(2) : nullptr;
  if (bias && bias->shape != Shape{channels}) {
    throw std::invalid_argument("bias of shape " + sdk::to_string(bias->shape) + "; expected " +
                                sdk::to_string({channels}));
  }
  const Dims spatial(x.shape.begin() + 2, x.shape.end()), kernel(w.shape.begin() + 2, w.shape.end());
  Dims dims(w.shape.begin(), w.shape.end()), strides = dense_strides(dims);
  dims[0] /= groups;
  const std::int64_t of_a_group = dims[0] * strides[0];
  if (Kind::kTransposed) {
    std::swap(dims[0], dims[1]);
    std::swap(strides[0], strides[1]);
  }
  if (groups > 1) {
    dims.insert(dims.begin(), groups);
    strides.insert(strides.begin(), of_a_group);
  }
  Problem<Kind> problem{x,
                        w,
                        bias,
                        Kind::kTransposed ? read_transposed_window(builder.node(), spatial, kernel)
                                          : read_window(builder.node(), spatial, kernel),
                        {x.shape[0], channels},
                        dims,
                        strides};
  const Dims& output = problem.window.output;
  problem.shape.insert(problem.shape.end(), output.begin(), output.end());
  return problem;
}

template <class Kind>
void compute(NodeBuilder& builder) {
  const auto problem = problem_of<Kind>(builder);
  const Value& x = problem.x;
  if (builder.is_empty(0, x.dtype, problem.shape)) return;
  if (sdk::element_count(problem.w.shape) == 0) throw sdk::Unsupported("a convolution over no channels");
  const auto description =
      problem.forward(dnnl::prop_kind::forward_inference, builder.with_post_operations(x.dtype, problem.shape));
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, builder.in_layout(x, description.src_desc())},
      {DNNL_ARG_WEIGHTS, builder.in_layout(problem.w, problem.weights(), description.weights_desc())},
  };
  if (problem.bias) arguments[DNNL_ARG_BIAS] = builder.dense_memory(*problem.bias);
  builder.add_post_operands(description, arguments);
  arguments[DNNL_ARG_DST] = builder.output(0, x.dtype, problem.shape, description.dst_desc()).memory;
  builder.add(typename Kind::Forward(description), arguments);
}

template <class Kind>
void data_gradient(NodeBuilder& builder, const Problem<Kind>& problem,
                   const typename Kind::Forward::primitive_desc& forward) {
  const typename Kind::BackwardData::primitive_desc description(
      engine(), Kind::kAlgorithm, problem.source_any(), problem.weights_any(), problem.target_any(),
      problem.window.strides, problem.window.onednn_dilations(), problem.window.begin, problem.window.end, forward);
  const auto cotangent = builder.in_layout(builder.cotangent(), description.diff_dst_desc());
  const auto weights = builder.in_layout(problem.w, problem.weights(), description.weights_desc());
  builder.add(typename Kind::BackwardData(description),
              {{DNNL_ARG_DIFF_DST, cotangent},
               {DNNL_ARG_WEIGHTS, weights},
               {DNNL_ARG_DIFF_SRC, builder.gradient(0, description.diff_src_desc()).memory}});
}

// Of the weights and the bias: one primitive.
template <class Kind>
void weights_gradient(NodeBuilder& builder, const Problem<Kind>& problem,
                      const typename Kind::Forward::primitive_desc& forward) {
  using Description = typename Kind::BackwardWeights::primitive_desc;
  const Window& window = problem.window;
  const Dims dilations = window.onednn_dilations();
  const Description description =
      problem.bias
          ? Description(engine(), Kind::kAlgorithm, problem.source_any(), problem.weights_any(), problem.bias_layout(),
                        problem.target_any(), window.strides, dilations, window.begin, window.end, forward)
          : Description(engine(), Kind::kAlgorithm, problem.source_any(), problem.weights_any(), problem.target_any(),
                        window.strides, dilations, window.begin, window.end, forward);
  const Desc layout = description.diff_weights_desc(), plain = problem.weights();
  dnnl::memory weights;
  if (builder.wants_gradient(1)) {
    weights = dnnl::memory(plain, engine(), builder.gradient(1).data());
  }
  const dnnl::memory own = weights && layout == plain ? weights : builder.scratch(layout);
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, builder.in_layout(problem.x, description.src_desc())},
      {DNNL_ARG_DIFF_DST, builder.in_layout(builder.cotangent(), description.diff_dst_desc())},
      {DNNL_ARG_DIFF_WEIGHTS, own}};
  if (problem.bias) {
    arguments[DNNL_ARG_DIFF_BIAS] =
        builder.wants_gradient(2) ? builder.gradient(2).memory : builder.scratch(problem.bias_layout());
  }
  builder.add(typename Kind::BackwardWeights(description), arguments);
  if (weights && own.get() != weights.get()) builder.add_reorder(own, weights);
}

template <class Kind>
void gradient(NodeBuilder& builder) {
  const auto problem = problem_of<Kind>(builder);
  if (builder.gradients_are_empty(problem.shape)) return;
  if (sdk::element_count(problem.w.shape) == 0) throw sdk::Unsupported("a convolution over no channels");
  const auto forward = problem.forward(dnnl::prop_kind::forward_training);
  if (builder.wants_gradient(0)) data_gradient(builder, problem, forward);
  if (builder.wants_gradient(1) || builder.wants_gradient(2)) weights_gradient(builder, problem, forward);
}

}  // namespace

Bindings convolution_bindings() {
  return {{"Conv", compute<Convolution>},
          {"gradient/Conv", gradient<Convolution>},
          {"ConvTranspose", compute<Deconvolution>},
          {"gradient/ConvTranspose", gradient<Deconvolution>}};
}

}  // namespace opdiff::onednn
