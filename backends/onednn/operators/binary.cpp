// Add, Sub, Mul, Div and their gradients, Max and Min: the binary primitive, with numpy's broadcasting, and reduction.
#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

using Description = dnnl::binary::primitive_desc;

dnnl::memory expanded(NodeBuilder& builder, const Value& value, const Shape& shape) {
  return builder.expanded(builder.dense_memory(value), dims_of(with_leading_ones(value.shape, shape.size())),
                          dims_of(shape));
}

// a and b by one primitive; `memory_for` makes the memory of the result, which has elements, in a layout of oneDNN's.
template <class MemoryFor>
Value combined(NodeBuilder& builder, dnnl::algorithm algorithm, const Value& a, const Value& b, MemoryFor memory_for) {
  const Shape shape = broadcast(a.shape, b.shape);
  const Desc target_any = any_layout(a.dtype, dims_of(shape));
  const auto finish = [&](const Description& description, const dnnl::memory& first, const dnnl::memory& second) {
    Value y;
    y.dtype = a.dtype;
    y.shape = shape;
    y.memory = memory_for(shape, description.dst_desc());
    builder.add(dnnl::binary(description),
                {{DNNL_ARG_SRC_0, first}, {DNNL_ARG_SRC_1, second}, {DNNL_ARG_DST, y.memory}});
    return y;
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
  return finish(both, expanded(builder, a, shape), expanded(builder, b, shape));
}

// Inputs one after the other; the last primitive writes the output.
void fold(NodeBuilder& builder, dnnl::algorithm algorithm) {
  const Value& first = builder.floating(0);
  Shape shape = first.shape;
  for (std::size_t k = 1; k < builder.input_count(); ++k) {
    const Value& next = builder.floating(k);
    if (next.dtype != first.dtype) throw std::invalid_argument("the operands have different dtypes");
    shape = broadcast(shape, next.shape);
  }
  if (builder.is_empty(0, first.dtype, shape)) return;
  const std::size_t last = builder.input_count() - 1;
  if (last == 0) {
    const Desc layout = first.memory.get_desc();
    return builder.add_reorder(first.memory, builder.output(0, first.dtype, shape, layout).memory);
  }
  Value so_far = first;
  for (std::size_t k = 1; k <= last; ++k) {
    so_far = combined(builder, algorithm, so_far, builder.floating(k), [&](const Shape& own, const Desc& layout) {
      return k == last ? builder.output(0, first.dtype, own, layout).memory : builder.scratch(layout);
    });
  }
}

// Gradients, term by term: products in float, then summed where an operand was broadcast.
class Gradient {
 public:
  explicit Gradient(NodeBuilder& builder)
      : builder_(builder),
        a_(builder.floating(0)),
        b_(builder.floating(1)),
        shape_(broadcast(a_.shape, b_.shape)),
        wide_(dense("float", shape_)) {
    if (a_.dtype != b_.dtype) throw std::invalid_argument("the operands have different dtypes");
  }

  const Value& a() const { return a_; }
  const Value& b() const { return b_; }
  const Shape& shape() const { return shape_; }
  dnnl::memory cotangent() { return builder_.dense_memory(builder_.cotangent()); }
  // An operand, all of it: only the second operand of the primitive may be broadcast.
  dnnl::memory full(const Value& value) {
    return value.shape == shape_ ? builder_.dense_memory(value) : expanded(builder_, value, shape_);
  }
  dnnl::memory seen(const Value& value) {
    return builder_.dense_view(value,
                               dense(*data_type(value.dtype), dims_of(with_leading_ones(value.shape, shape_.size()))));
  }
  dnnl::memory combine(dnnl::algorithm algorithm, const dnnl::memory& first, const dnnl::memory& second) {
    const Description description(engine(), algorithm, first.get_desc(), second.get_desc(), wide_);
    const dnnl::memory result = builder_.scratch(wide_);
    builder_.add(dnnl::binary(description),
                 {{DNNL_ARG_SRC_0, first}, {DNNL_ARG_SRC_1, second}, {DNNL_ARG_DST, result}});
    return result;
  }
  void finish(std::size_t index, const dnnl::memory& terms, float factor = 1) {
    const Value& x = index == 0 ? a_ : b_;
    const Desc seen = dense(*data_type(x.dtype), dims_of(with_leading_ones(x.shape, shape_.size())));
    builder_.add_sum(terms, dnnl::memory(seen, engine(), builder_.gradient(index).data()), factor);
  }

 private:
  NodeBuilder& builder_;
  const Value &a_, &b_;
  Shape shape_;
  Desc wide_;
};

template <dnnl::algorithm kind>
void gradient(NodeBuilder& builder) {
  using dnnl::algorithm;
  Gradient own(builder);
  if (builder.gradients_are_empty(own.shape())) return;
  const auto cotangent = own.cotangent();
  constexpr bool sums = kind == algorithm::binary_add || kind == algorithm::binary_sub;
  if (builder.wants_gradient(0)) {
    own.finish(0, sums ? cotangent
                       : own.combine(kind == algorithm::binary_mul ? kind : algorithm::binary_div, cotangent,
                                     own.seen(own.b())));
  }
  if (!builder.wants_gradient(1)) return;
  if (sums) return own.finish(1, cotangent, kind == algorithm::binary_sub ? -1 : 1);
  if (kind == algorithm::binary_mul) return own.finish(1, own.combine(kind, cotangent, own.seen(own.a())));
  const auto quotient = own.combine(kind, own.full(own.a()), own.seen(own.b()));
  own.finish(1, own.combine(algorithm::binary_mul, cotangent, own.combine(kind, quotient, own.seen(own.b()))), -1);
}

const std::map<std::string, dnnl::algorithm>& table() {
  using dnnl::algorithm;
  static const std::map<std::string, algorithm> entries = {
      {"Add", algorithm::binary_add}, {"Sub", algorithm::binary_sub}, {"Mul", algorithm::binary_mul},
      {"Div", algorithm::binary_div}, {"Max", algorithm::binary_max}, {"Min", algorithm::binary_min}};
  return entries;
}

void binary(NodeBuilder& builder) { fold(builder, table().at(builder.node().op)); }

}  // namespace

std::optional<dnnl::algorithm> binary_algorithm(const std::string& op) {
  const auto found = table().find(op);
  return found == table().end() ? std::nullopt : std::optional(found->second);
}

Bindings binary_bindings() {
  using dnnl::algorithm;
  Bindings bindings = {{"gradient/Add", gradient<algorithm::binary_add>},
                       {"gradient/Sub", gradient<algorithm::binary_sub>},
                       {"gradient/Mul", gradient<algorithm::binary_mul>},
                       {"gradient/Div", gradient<algorithm::binary_div>}};
  for (const auto& [op, unused] : table()) bindings.emplace_back(op, static_cast<Binding>(binary));
  return bindings;
}

}  // namespace opdiff::onednn
