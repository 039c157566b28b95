// ReduceMean, ReduceSum, ReduceMax and ReduceMin: the reduction primitive. The gradients of the first two: the
// cotangent, or its share of the count, repeated.
#include <set>

#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

// `axes_since`: the opset from which the axes are an input.
template <dnnl::algorithm algorithm, std::int64_t axes_since>
void reduce(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  const std::size_t rank = x.shape.size();
  std::vector<std::int64_t> axes;
  if (builder.opset() < axes_since) {
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
    dnnl::memory each = builder.dense_memory(builder.cotangent());
    if (algorithm == dnnl::algorithm::reduction_mean) {
      const Desc layout = each.get_desc();
      const auto count =
          static_cast<float>(sdk::element_count(x.shape)) / static_cast<float>(sdk::element_count(shape));
      const dnnl::eltwise_forward::primitive_desc description(
          engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::eltwise_linear, layout, layout, 1 / count);
      const dnnl::memory shared = builder.scratch(layout);
      builder.add(dnnl::eltwise_forward(description), {{DNNL_ARG_SRC, each}, {DNNL_ARG_DST, shared}});
      each = shared;
    }
    return builder.add_reorder(builder.expanded(each, target, dims_of(x.shape)), builder.gradient(0).memory);
  }
  if (builder.is_empty(0, x.dtype, shape)) return;
  if (sdk::element_count(x.shape) == 0) throw sdk::Unsupported("a reduction of nothing");
  const Desc layout = dense(*data_type(x.dtype), target);
  const dnnl::memory source = builder.dense_memory(x);
  const Value& y = builder.output(0, x.dtype, shape);
  const dnnl::memory seen(layout, engine(), y.data());
  if (target == dims_of(x.shape)) return builder.add_reorder(source, seen);  // nothing is reduced
  const dnnl::reduction::primitive_desc description(engine(), algorithm, source.get_desc(), layout, 0, 0);
  builder.add(dnnl::reduction(description), {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, seen}});
}

}  // namespace

Bindings reduction_bindings() {
  using dnnl::algorithm;
  return {{"ReduceMean", reduce<algorithm::reduction_mean, 18>},
          {"ReduceSum", reduce<algorithm::reduction_sum, 13>},
          {"ReduceMax", reduce<algorithm::reduction_max, 18>},
          {"ReduceMin", reduce<algorithm::reduction_min, 18>},
          {"gradient/ReduceMean", reduce<algorithm::reduction_mean, 18>},
          {"gradient/ReduceSum", reduce<algorithm::reduction_sum, 13>}};
}

}  // namespace opdiff::onednn
