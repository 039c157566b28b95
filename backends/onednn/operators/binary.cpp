// Add, Sub, Mul, Div: the binary primitive, with numpy's broadcasting.
#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

using Description = dnnl::binary::primitive_desc;

// `value` with its dimensions of size one repeated up to `shape`, by a plain copy.
dnnl::memory expanded(NodeBuilder& builder, const Value& value, const Shape& shape) {
  const dnnl::memory from = builder.dense_memory(value);
  const dnnl::memory to = builder.scratch(dense(value.dtype, shape));
  const Shape seen = with_leading_ones(value.shape, shape.size());
  Dims strides = dense_strides(seen);
  for (std::size_t i = 0; i < seen.size(); ++i) strides[i] = seen[i] == 1 ? 0 : strides[i];
  builder.add_host([from, to, strides, shape, size = sdk::element_size(value.dtype)] {
    copy_strided(static_cast<const std::byte*>(from.get_data_handle()), 0, strides, shape, size,
                 static_cast<std::byte*>(to.get_data_handle()));
  });
  return to;
}

void binary(NodeBuilder& builder, dnnl::algorithm algorithm) {
  const Value& a = builder.floating(0);
  const Value& b = builder.floating(1);
  if (a.dtype != b.dtype) throw std::invalid_argument("the operands have different dtypes");
  const Shape shape = broadcast(a.shape, b.shape);
  if (builder.is_empty(0, a.dtype, shape)) return;

  const Desc target_any = any_layout(a.dtype, dims_of(shape));
  const auto finish = [&](const Description& description, const dnnl::memory& first, const dnnl::memory& second) {
    const Value& y = builder.output(0, a.dtype, shape, description.dst_desc());
    builder.add(dnnl::binary(description),
                {{DNNL_ARG_SRC_0, first}, {DNNL_ARG_SRC_1, second}, {DNNL_ARG_DST, y.memory}});
  };
  // In the layouts that they come in, if oneDNN can; else dense.
  if (a.shape == b.shape) {
    if (const Description as_is(engine(), algorithm, a.memory.get_desc(), b.memory.get_desc(), target_any, {}, true);
        as_is) {
      return finish(as_is, a.memory, b.memory);
    }
  }
  const auto type = *data_type(a.dtype);
  const Desc first = dense(type, dims_of(with_leading_ones(a.shape, shape.size())));
  const Desc second = dense(type, dims_of(with_leading_ones(b.shape, shape.size())));
  const Desc target = dense(a.dtype, shape);
  if (const Description direct(engine(), algorithm, first, second, target, {}, true); direct)
    return finish(direct, builder.dense_view(a, first), builder.dense_view(b, second));
  // Only the second operand may be broadcast in this version: repeat the first.
  const Description repeated(engine(), algorithm, target, second, target, {}, true);
  if (repeated) return finish(repeated, expanded(builder, a, shape), builder.dense_view(b, second));
  const Description both(engine(), algorithm, target, target, target);
  finish(both, expanded(builder, a, shape), expanded(builder, b, shape));
}

template <dnnl::algorithm algorithm>
void bind(NodeBuilder& builder) {
  binary(builder, algorithm);
}

}  // namespace

Bindings binary_bindings() {
  using dnnl::algorithm;
  return {{"Add", bind<algorithm::binary_add>},
          {"Sub", bind<algorithm::binary_sub>},
          {"Mul", bind<algorithm::binary_mul>},
          {"Div", bind<algorithm::binary_div>}};
}

}  // namespace opdiff::onednn
