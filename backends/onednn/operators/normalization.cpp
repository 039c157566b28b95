// BatchNormalization (inference), Softmax, LogSoftmax and their gradients.
#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

void batch_normalization(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  if (builder.node().integer("training_mode", 0) != 0) throw sdk::Unsupported("attribute 'training_mode' is not 0");
  if (builder.node().integer("spatial", 1) != 1) throw sdk::Unsupported("attribute 'spatial' is not 1");
  for (std::size_t i = 1; i < builder.node().outputs.size() && !builder.is_gradient(); ++i) {
    if (builder.wants_output(i)) throw sdk::Unsupported("outputs beside the first are of training only");
  }
  if (x.shape.size() < 2) throw std::invalid_argument("input of shape " + sdk::to_string(x.shape) + " has no channels");
  if (x.shape.size() > 5) throw sdk::Unsupported("oneDNN normalises in at most three spatial dimensions");
  const Shape channels = {x.shape[1]};
  for (std::size_t i = 1; i <= 4; ++i) {
    if (builder.floating(i).shape != channels) {
      throw std::invalid_argument("input " + std::to_string(i) + " has shape " +
                                  sdk::to_string(builder.input(i).shape) + "; expected " + sdk::to_string(channels));
    }
  }
  if (builder.is_gradient()) {
    if (builder.wants_output(3) || builder.wants_output(4))
      throw sdk::Unsupported("gradients of given statistics: to oneDNN they are constants");
    if (builder.gradients_are_empty(x.shape)) return;
  } else if (builder.is_empty(0, x.dtype, x.shape)) {
    return;
  }
  using Flags = dnnl::normalization_flags;
  const auto kind = builder.is_gradient() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  const auto epsilon = static_cast<float>(builder.node().real("epsilon", 1e-5));
  auto flags = Flags::use_global_stats | Flags::use_scale | Flags::use_shift;
  if (builder.fuses()) flags = flags | Flags::fuse_norm_relu;
  const dnnl::batch_normalization_forward::primitive_desc description(
      engine(), kind, x.memory.get_desc(), any_layout(x.dtype, dims_of(x.shape)), epsilon, flags);
  // oneDNN takes the statistics in float, whatever the input's dtype.
  const auto vector = [&](std::size_t index) {
    return builder.in_layout(builder.input(index), dense("float", channels));
  };
  const auto scale = vector(1), shift = vector(2), mean = vector(3), variance = vector(4);
  const auto source = builder.in_layout(x, description.src_desc());
  if (builder.is_gradient()) {
    const dnnl::batch_normalization_backward::primitive_desc backward(
        engine(), dnnl::prop_kind::backward, any_layout(x.dtype, dims_of(x.shape)), description.dst_desc(),
        description.src_desc(), epsilon, flags, description);
    const auto cotangent = builder.in_layout(builder.cotangent(), backward.diff_dst_desc());
    const Desc vectors = dense("float", channels);
    const dnnl::memory scales = builder.scratch(vectors), shifts = builder.scratch(vectors);
    const dnnl::memory result = builder.wants_gradient(0) ? builder.gradient(0, backward.diff_src_desc()).memory
                                                          : builder.scratch(backward.diff_src_desc());
    builder.add(dnnl::batch_normalization_backward(backward), {{DNNL_ARG_SRC, source},
                                                               {DNNL_ARG_DIFF_DST, cotangent},
                                                               {DNNL_ARG_SCALE, scale},
                                                               {DNNL_ARG_MEAN, mean},
                                                               {DNNL_ARG_VARIANCE, variance},
                                                               {DNNL_ARG_DIFF_SRC, result},
                                                               {DNNL_ARG_DIFF_SCALE, scales},
                                                               {DNNL_ARG_DIFF_SHIFT, shifts}});
    if (builder.wants_gradient(1)) builder.add_reorder(scales, builder.gradient(1).memory);
    if (builder.wants_gradient(2)) builder.add_reorder(shifts, builder.gradient(2).memory);
    return;
  }
  const Value& y = builder.output(0, x.dtype, x.shape, description.dst_desc());
  builder.add(dnnl::batch_normalization_forward(description), {{DNNL_ARG_SRC, source},
                                                               {DNNL_ARG_SCALE, scale},
                                                               {DNNL_ARG_SHIFT, shift},
                                                               {DNNL_ARG_MEAN, mean},
                                                               {DNNL_ARG_VARIANCE, variance},
                                                               {DNNL_ARG_DST, y.memory}});
}

void softmax_as(NodeBuilder& builder, dnnl::algorithm algorithm) {
  const Value& x = builder.floating(0);
  const bool flattens = builder.opset() < 13;  // before it, a softmax over all axes from `axis` on
  const std::int64_t asked = builder.node().integer("axis", flattens ? 1 : -1);
  const auto rank = static_cast<std::int64_t>(x.shape.size());
  if (builder.is_gradient() ? builder.gradients_are_empty(x.shape) : builder.is_empty(0, x.dtype, x.shape)) return;
  Desc layout = x.memory.get_desc();
  std::size_t axis = 0;
  if (flattens) {
    if (asked < -rank || asked > rank) throw std::invalid_argument("attribute 'axis' is " + std::to_string(asked));
    const auto split = x.shape.begin() + (asked < 0 ? asked + rank : asked);
    const auto rows = static_cast<std::int64_t>(sdk::element_count(Shape(x.shape.begin(), split)));
    const auto columns = static_cast<std::int64_t>(sdk::element_count(Shape(split, x.shape.end())));
    layout = dense(*data_type(x.dtype), {rows, columns});
    axis = 1;
  } else if (rank > 0) {
    axis = normal_axis(asked, x.shape.size());
  }
  const auto kind = builder.is_gradient() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  const dnnl::softmax_forward::primitive_desc description(engine(), kind, algorithm, layout, layout,
                                                          static_cast<int>(axis));
  const auto source = flattens ? builder.dense_view(x, layout) : x.memory;
  if (builder.is_gradient()) {  // it is worked out from the result, which a forward pass makes here
    const dnnl::softmax_backward::primitive_desc backward(engine(), algorithm, layout, layout, layout,
                                                          static_cast<int>(axis), description);
    const auto result = builder.scratch(layout);
    builder.add(dnnl::softmax_forward(description), {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, result}});
    const auto cotangent =
        flattens ? builder.dense_view(builder.cotangent(), layout) : builder.in_layout(builder.cotangent(), layout);
    const Value& dx = flattens ? builder.gradient(0) : builder.gradient(0, layout);
    const auto target = flattens ? dnnl::memory(layout, engine(), dx.data()) : dx.memory;
    return builder.add(dnnl::softmax_backward(backward),
                       {{DNNL_ARG_DST, result}, {DNNL_ARG_DIFF_DST, cotangent}, {DNNL_ARG_DIFF_SRC, target}});
  }
  const Value& y = flattens ? builder.output(0, x.dtype, x.shape) : builder.output(0, x.dtype, x.shape, layout);
  const auto target = flattens ? dnnl::memory(layout, engine(), y.data()) : y.memory;
  builder.add(dnnl::softmax_forward(description), {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, target}});
}

void softmax(NodeBuilder& builder) { softmax_as(builder, dnnl::algorithm::softmax_accurate); }
void log_softmax(NodeBuilder& builder) { softmax_as(builder, dnnl::algorithm::softmax_log); }

}  // namespace

Bindings normalization_bindings() {
  return {{"BatchNormalization", batch_normalization},
          {"Softmax", softmax},
          {"LogSoftmax", log_softmax},
          {"gradient/BatchNormalization", batch_normalization},
          {"gradient/Softmax", softmax},
          {"gradient/LogSoftmax", log_softmax}};
}

}  // namespace opdiff::onednn
