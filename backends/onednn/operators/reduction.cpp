// ReduceMean: the reduction primitive. Its gradient: the cotangent over their number, repeated.
#include <set>

#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

void reduce_mean(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  const std::size_t rank = x.shape.size();
  std::vector<std::int64_t> axes;
  if (builder.opset() < 18) {
    axes = builder.node().integers("axes", {});
  } else if (builder.has(1)) {
    axes = builder.integers(1);
  }
  std::set<std::size_t> reduced;
  for (const auto axis : axes) reduced.insert(normal_axis(axis, rank));
  if (axes.empty() && builder.node().integer("noop_with_empty_axes", 0) == 0) {
    for (std::size_t i = 0; i < rank; ++i) reduced.insert(i);
  }
  const bool keep = builder.node().integer("keepdims", 1) != 0;
  Shape shape;
  Dims target = dims_of(x.shape);
  for (std::size_t i = 0; i < rank; ++i) {
    if (!reduced.count(i)) shape.push_back(x.shape[i]);
    if (!reduced.count(i)) continue;
    target[i] = 1;
    if (keep) shape.push_back(1);
  }
  if (builder.is_gradient()) {
    if (builder.gradients_are_empty(shape)) return;
    const dnnl::memory cotangent = builder.dense_memory(builder.cotangent());
    const Desc layout = cotangent.get_desc();
    const auto count = static_cast<float>(sdk::element_count(x.shape)) / static_cast<float>(sdk::element_count(shape));
    const dnnl::eltwise_forward::primitive_desc description(engine(), dnnl::prop_kind::forward_inference,
                                                            dnnl::algorithm::eltwise_linear, layout, layout, 1 / count);
    const dnnl::memory shared = builder.scratch(layout);
    builder.add(dnnl::eltwise_forward(description), {{DNNL_ARG_SRC, cotangent}, {DNNL_ARG_DST, shared}});
    return builder.add_reorder(builder.expanded(shared, target, dims_of(x.shape)), builder.gradient(0).memory);
  }
  if (builder.is_empty(0, x.dtype, shape)) return;
  if (sdk::element_count(x.shape) == 0) throw sdk::Unsupported("a mean of nothing");
  const Desc layout = dense(*data_type(x.dtype), target);
  const dnnl::memory source = builder.dense_memory(x);
  const Value& y = builder.output(0, x.dtype, shape);
  const dnnl::memory seen(layout, engine(), y.data());
  if (target == dims_of(x.shape)) return builder.add_reorder(source, seen);  // nothing is averaged
  const dnnl::reduction::primitive_desc description(engine(), dnnl::algorithm::reduction_mean, source.get_desc(),
                                                    layout, 0, 0);
  builder.add(dnnl::reduction(description), {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, seen}});
}

}  // namespace

Bindings reduction_bindings() { return {{"ReduceMean", reduce_mean}, {"gradient/ReduceMean", reduce_mean}}; }

}  // namespace opdiff::onednn
