// MaxPool, AveragePool, GlobalAveragePool and their gradients: the pooling primitive.
#include <algorithm>

#include "../window.h"

namespace opdiff::onednn {
namespace {

const Value& image(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  if (x.shape.size() < 3) {
    throw std::invalid_argument("input of shape " + sdk::to_string(x.shape) +
                                "; expected batch, channels and at least one spatial dimension");
  }
  if (x.shape.size() > 5) throw sdk::Unsupported("oneDNN pools in at most three spatial dimensions");
  return x;
}

void pool(NodeBuilder& builder, const Value& x, dnnl::algorithm algorithm, const Window& window) {
  Shape shape = {x.shape[0], x.shape[1]};
  shape.insert(shape.end(), window.output.begin(), window.output.end());
  if (builder.is_gradient() ? builder.gradients_are_empty(shape) : builder.is_empty(0, x.dtype, shape)) return;
  Dims end = window.end;  // ceil_mode: the last window is let in by padding on the right
  for (std::size_t i = 0; i < end.size(); ++i) end[i] += window.overhang[i];
  const auto kind = builder.is_gradient() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  const dnnl::pooling_forward::primitive_desc description(engine(), kind, algorithm, x.memory.get_desc(),
                                                          any_layout(x.dtype, dims_of(shape)), window.strides,
                                                          window.kernel, window.onednn_dilations(), window.begin, end);
  if (builder.is_gradient()) {
    const dnnl::pooling_backward::primitive_desc backward(engine(), algorithm, description.src_desc(),
                                                          description.dst_desc(), window.strides, window.kernel,
                                                          window.onednn_dilations(), window.begin, end, description);
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_DIFF_DST, builder.in_layout(builder.cotangent(), backward.diff_dst_desc())}};
    if (algorithm == dnnl::algorithm::pooling_max) {  // where the maxima are, only a forward pass says
      arguments[DNNL_ARG_WORKSPACE] = builder.scratch(description.workspace_desc());
      builder.add(dnnl::pooling_forward(description), {{DNNL_ARG_SRC, builder.in_layout(x, description.src_desc())},
                                                       {DNNL_ARG_DST, builder.scratch(description.dst_desc())},
                                                       {DNNL_ARG_WORKSPACE, arguments[DNNL_ARG_WORKSPACE]}});
    }
    arguments[DNNL_ARG_DIFF_SRC] = builder.gradient(0, backward.diff_src_desc()).memory;
    return builder.add(dnnl::pooling_backward(backward), arguments);
  }
  const auto source = builder.in_layout(x, description.src_desc());
  const Value& y = builder.output(0, x.dtype, shape, description.dst_desc());
  builder.add(dnnl::pooling_forward(description), {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, y.memory}});
}

void max_pool(NodeBuilder& builder) {
  const Value& x = image(builder);
  if (!builder.is_gradient() && builder.wants_output(1))
    throw sdk::Unsupported("output 1 (Indices): oneDNN gives no indices of this form");
  pool(builder, x, dnnl::algorithm::pooling_max,
       read_window(builder.node(), Dims(x.shape.begin() + 2, x.shape.end()), {}));
}

void average_pool(NodeBuilder& builder) {
  const Value& x = image(builder);
  const Window window = read_window(builder.node(), Dims(x.shape.begin() + 2, x.shape.end()), {});
  const bool include_padding = builder.node().integer("count_include_pad", 0) != 0;
  if (include_padding && std::any_of(window.overhang.begin(), window.overhang.end(), [](auto n) { return n > 0; })) {
    // ONNX does not count what lies beyond the padded input; as padding, oneDNN would.
    throw sdk::Unsupported("ceil_mode with count_include_pad has no equal among oneDNN's algorithms here");
  }
  pool(builder, x,
       include_padding ? dnnl::algorithm::pooling_avg_include_padding : dnnl::algorithm::pooling_avg_exclude_padding,
       window);
}

void global_average_pool(NodeBuilder& builder) {
  const Value& x = image(builder);
  Window window;
  window.kernel.assign(x.shape.begin() + 2, x.shape.end());
  const std::size_t rank = window.kernel.size();
  window.strides = window.kernel;
  window.dilations.assign(rank, 1);
  window.output.assign(rank, 1);
  window.begin = window.end = window.overhang = Dims(rank, 0);
  if (std::count(window.kernel.begin(), window.kernel.end(), 0) > 0) throw sdk::Unsupported("an average of nothing");
  pool(builder, x, dnnl::algorithm::pooling_avg_exclude_padding, window);
}

}  // namespace

Bindings pooling_bindings() {
  return {{"MaxPool", max_pool},
          {"AveragePool", average_pool},
          {"GlobalAveragePool", global_average_pool},
          {"gradient/MaxPool", max_pool},
          {"gradient/AveragePool", average_pool},
          {"gradient/GlobalAveragePool", global_average_pool}};
}

}  // namespace opdiff::onednn
