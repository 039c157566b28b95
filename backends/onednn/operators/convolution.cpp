// Conv and its gradient: the convolution primitives, in one to three spatial dimensions. Weights that are known are
// reordered once.
#include "../window.h"

namespace opdiff::onednn {
namespace {

// What is convolved, checked.
struct Problem {
  const Value& x;
  const Value& w;
  const Value* bias;
  Window window;
  Shape shape;       // of the result
  Dims weight_dims;  // with the groups in front

  Desc source_any() const { return any_layout(x.dtype, dims_of(x.shape)); }
  Desc weights_any() const { return any_layout(w.dtype, weight_dims); }
  Desc target_any() const { return any_layout(x.dtype, dims_of(shape)); }
  Desc weights() const { return dense(*data_type(w.dtype), weight_dims); }
  Desc bias_layout() const { return dense(bias->dtype, bias->shape); }
  dnnl::convolution_forward::primitive_desc forward(dnnl::prop_kind kind,
                                                    const dnnl::primitive_attr& attributes = {}) const {
    using Description = dnnl::convolution_forward::primitive_desc;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const Dims dilations = window.onednn_dilations();
    return bias ? Description(engine(), kind, algorithm, source_any(), weights_any(), bias_layout(), target_any(),
                              window.strides, dilations, window.begin, window.end, attributes)
                : Description(engine(), kind, algorithm, source_any(), weights_any(), target_any(), window.strides,
                              dilations, window.begin, window.end, attributes);
  }
};

Problem problem_of(NodeBuilder& builder) {
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
  if (groups < 1 || x.shape[1] % groups != 0 || w.shape[0] % groups != 0 || w.shape[1] != x.shape[1] / groups) {
    throw std::invalid_argument("group " + std::to_string(groups) + " does not fit an input of shape " +
                                sdk::to_string(x.shape) + " and weights of shape " + sdk::to_string(w.shape));
  }
  const Value* bias = builder.has(2) ? &builder.floating(2) : nullptr;
  if (bias && bias->shape != Shape{w.shape[0]}) {
    throw std::invalid_argument("bias of shape " + sdk::to_string(bias->shape) + "; expected " +
                                sdk::to_string({w.shape[0]}));
  }
  Problem problem{
      x,
      w,
      bias,
      read_window(builder.node(), Dims(x.shape.begin() + 2, x.shape.end()), Dims(w.shape.begin() + 2, w.shape.end())),
      {x.shape[0], w.shape[0]},
      Dims(w.shape.begin(), w.shape.end())};
  const Dims& output = problem.window.output;
  problem.shape.insert(problem.shape.end(), output.begin(), output.end());
  if (groups > 1) {
    problem.weight_dims[0] /= groups;
    problem.weight_dims.insert(problem.weight_dims.begin(), groups);
  }
  return problem;
}

void convolution(NodeBuilder& builder) {
  const Problem problem = problem_of(builder);
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
  builder.add(dnnl::convolution_forward(description), arguments);
}

void data_gradient(NodeBuilder& builder, const Problem& problem,
                   const dnnl::convolution_forward::primitive_desc& forward) {
  const dnnl::convolution_backward_data::primitive_desc description(
      engine(), dnnl::algorithm::convolution_direct, problem.source_any(), problem.weights_any(), problem.target_any(),
      problem.window.strides, problem.window.onednn_dilations(), problem.window.begin, problem.window.end, forward);
  const auto cotangent = builder.in_layout(builder.cotangent(), description.diff_dst_desc());
  const auto weights = builder.in_layout(problem.w, problem.weights(), description.weights_desc());
  builder.add(dnnl::convolution_backward_data(description),
              {{DNNL_ARG_DIFF_DST, cotangent},
               {DNNL_ARG_WEIGHTS, weights},
               {DNNL_ARG_DIFF_SRC, builder.gradient(0, description.diff_src_desc()).memory}});
}

// Of the weights and the bias: one primitive.
void weights_gradient(NodeBuilder& builder, const Problem& problem,
                      const dnnl::convolution_forward::primitive_desc& forward) {
  using Description = dnnl::convolution_backward_weights::primitive_desc;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const Window& window = problem.window;
  const Dims dilations = window.onednn_dilations();
  const Description description =
      problem.bias
          ? Description(engine(), algorithm, problem.source_any(), problem.weights_any(), problem.bias_layout(),
                        problem.target_any(), window.strides, dilations, window.begin, window.end, forward)
          : Description(engine(), algorithm, problem.source_any(), problem.weights_any(), problem.target_any(),
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
  builder.add(dnnl::convolution_backward_weights(description), arguments);
  if (weights && own.get() != weights.get()) builder.add_reorder(own, weights);
}

void gradient(NodeBuilder& builder) {
  const Problem problem = problem_of(builder);
  if (builder.gradients_are_empty(problem.shape)) return;
  if (sdk::element_count(problem.w.shape) == 0) throw sdk::Unsupported("a convolution over no channels");
  const auto forward = problem.forward(dnnl::prop_kind::forward_training);
  if (builder.wants_gradient(0)) data_gradient(builder, problem, forward);
  if (builder.wants_gradient(1) || builder.wants_gradient(2)) weights_gradient(builder, problem, forward);
}

}  // namespace

Bindings convolution_bindings() { return {{"Conv", convolution}, {"gradient/Conv", gradient}}; }

}  // namespace opdiff::onednn
