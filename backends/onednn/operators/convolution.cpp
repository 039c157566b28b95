// Conv: the convolution primitive, in one to three spatial dimensions. Weights that are known are reordered
// once.
#include "../window.h"

namespace opdiff::onednn {
namespace {

void convolution(NodeBuilder& builder) {
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
  const Window window =
      read_window(builder.node(), Dims(x.shape.begin() + 2, x.shape.end()), Dims(w.shape.begin() + 2, w.shape.end()));
  Shape shape = {x.shape[0], w.shape[0]};
  shape.insert(shape.end(), window.output.begin(), window.output.end());
  if (builder.is_empty(0, x.dtype, shape)) return;
  if (sdk::element_count(w.shape) == 0) throw sdk::Unsupported("a convolution over no channels");

  Dims weight_dims(w.shape.begin(), w.shape.end());
  if (groups > 1) {
    weight_dims[0] /= groups;
    weight_dims.insert(weight_dims.begin(), groups);
  }
  const Desc weights = dense(*data_type(w.dtype), weight_dims);
  const bool biased = builder.has(2);
  if (biased && builder.floating(2).shape != Shape{w.shape[0]}) {
    throw std::invalid_argument("bias of shape " + sdk::to_string(builder.input(2).shape) + "; expected " +
                                sdk::to_string({w.shape[0]}));
  }
  const Desc source_any = any_layout(x.dtype, dims_of(x.shape)), weights_any = any_layout(w.dtype, weight_dims),
             target_any = any_layout(x.dtype, dims_of(shape));
  const auto attributes = builder.with_post_operations();
  using Description = dnnl::convolution_forward::primitive_desc;
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const Description description =
      biased
          ? Description(engine(), kind, algorithm, source_any, weights_any, dense(builder.input(2).dtype, {w.shape[0]}),
                        target_any, window.strides, window.onednn_dilations(), window.begin, window.end, attributes)
          : Description(engine(), kind, algorithm, source_any, weights_any, target_any, window.strides,
                        window.onednn_dilations(), window.begin, window.end, attributes);
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, builder.in_layout(x, description.src_desc())},
      {DNNL_ARG_WEIGHTS, builder.in_layout(w, weights, description.weights_desc())},
  };
  if (biased) arguments[DNNL_ARG_BIAS] = builder.dense_memory(builder.input(2));
  arguments[DNNL_ARG_DST] = builder.output(0, x.dtype, shape, description.dst_desc()).memory;
  builder.add(dnnl::convolution_forward(description), arguments);
}

}  // namespace

Bindings convolution_bindings() { return {{"Conv", convolution}}; }

}  // namespace opdiff::onednn
