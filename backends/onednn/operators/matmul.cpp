// Gemm, MatMul and their gradients: the matmul primitive. Transposes are strides, alpha is a scale, C is the bias
// (scaled by beta).
#include <algorithm>
#include <cstring>

#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

using Description = dnnl::matmul::primitive_desc;

// A matrix (or a batch of them) as the primitive sees a value's dense elements.
struct Operand {
  const Value* value;
  Desc seen;
  Dims dims;
};

Operand operand(const Value& value, const Dims& dims, bool transposed = false) {
  const auto type = *data_type(value.dtype);
  if (!transposed) return {&value, dense(type, dims), dims};
  const std::size_t last = dims.size() - 1;
  Dims strides = dense_strides(dims), swapped = dims;
  std::swap(strides[last], strides[last - 1]);
  std::swap(swapped[last], swapped[last - 1]);
  return {&value, Desc(swapped, type, strides), swapped};
}

// The primitive that computes a * w (+ bias), with known weights in the layout that it likes best.
Description describe(const Operand& a, const Operand& w, const Desc* bias, const Desc& target,
                     const dnnl::primitive_attr& attributes) {
  const auto attempt = [&](const Desc& weights, bool may_fail) {
    return bias ? Description(engine(), a.seen, weights, *bias, target, attributes, may_fail)
                : Description(engine(), a.seen, weights, target, attributes, may_fail);
  };
  if (w.value->known) {
    if (const auto best = attempt(any_layout(w.value->dtype, w.dims), true)) return best;
  }
  return attempt(w.seen, false);
}

// ONNX's (numpy's) rule: what is multiplied, batch by batch.
struct Product {
  const Value& a;
  const Value& b;
  Shape left, right;  // with the dimensions that a vector lacks
  std::int64_t rows, inner, columns;
  Shape batch, shape;  // of the result

  Dims dims(const Shape& matrices) const { return with_leading_ones(matrices, batch.size() + 2); }
  Dims result(std::int64_t first, std::int64_t second) const {
    Dims all(batch.begin(), batch.end());
    all.push_back(first);
    all.push_back(second);
    return all;
  }
};

Product product_of(NodeBuilder& builder) {
  const Value& a = builder.floating(0);
  const Value& b = builder.floating(1);
  if (a.dtype != b.dtype) throw std::invalid_argument("the operands have different dtypes");
  if (a.shape.empty() || b.shape.empty()) throw std::invalid_argument("an operand is a scalar");
  Shape left = a.shape, right = b.shape;
  if (left.size() == 1) left.insert(left.begin(), 1);
  if (right.size() == 1) right.push_back(1);
  const std::int64_t rows = left[left.size() - 2], inner = left.back(), columns = right.back();
  if (inner != right[right.size() - 2]) {
    throw std::invalid_argument("shapes " + sdk::to_string(a.shape) + " and " + sdk::to_string(b.shape) +
                                " differ in the dimension that is summed over");
  }
  const Shape batch = broadcast(Shape(left.begin(), left.end() - 2), Shape(right.begin(), right.end() - 2));
  Shape shape = batch;
  if (a.shape.size() > 1) shape.push_back(rows);
  if (b.shape.size() > 1) shape.push_back(columns);
  return {a, b, left, right, rows, inner, columns, batch, shape};
}

void matmul(NodeBuilder& builder) {
  const Product p = product_of(builder);
  if (builder.is_empty(0, p.a.dtype, p.shape)) return;
  if (p.inner == 0) throw sdk::Unsupported("a product that sums over nothing");
  const Operand first = operand(p.a, p.dims(p.left));
  const Operand second = operand(p.b, p.dims(p.right));
  const Dims dims = p.result(p.rows, p.columns);
  // What is added to a product with a vector sees fewer dimensions than the primitive has.
  if (builder.fuses() && dims.size() != p.shape.size()) throw sdk::Unsupported("nothing is fused behind it");
  const Desc target_layout = dense(*data_type(p.a.dtype), dims);
  const auto attributes = builder.with_post_operations(p.a.dtype, Shape(dims.begin(), dims.end()));
  const auto description = describe(first, second, nullptr, target_layout, attributes);
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, builder.dense_view(p.a, first.seen)},
      {DNNL_ARG_WEIGHTS, builder.in_layout(p.b, second.seen, description.weights_desc())}};
  builder.add_post_operands(description, arguments);
  const Value& y = builder.output(0, p.a.dtype, p.shape);
  arguments[DNNL_ARG_DST] = dnnl::memory(target_layout, engine(), y.data());
  builder.add(dnnl::matmul(description), arguments);
}

// target = factor * first * second.
void multiply(NodeBuilder& builder, const Operand& first, const Operand& second, const dnnl::memory& target,
              float factor = 1) {
  dnnl::primitive_attr attributes;
  std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, builder.dense_view(*first.value, first.seen)},
                                                     {DNNL_ARG_DST, target}};
  if (factor != 1) {
    attributes.set_scales_mask(DNNL_ARG_SRC, 0);
    arguments[DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC] = builder.scale_memory(factor);
  }
  const auto description = describe(first, second, nullptr, target.get_desc(), attributes);
  arguments[DNNL_ARG_WEIGHTS] = builder.in_layout(*second.value, second.seen, description.weights_desc());
  builder.add(dnnl::matmul(description), arguments);
}

// dA = dY transpose(B), dB = transpose(A) dY; summed over the batches that an operand was broadcast to.
void matmul_gradient(NodeBuilder& builder) {
  const Product p = product_of(builder);
  if (builder.gradients_are_empty(p.shape)) return;
  const Operand cotangent = operand(builder.cotangent(), p.result(p.rows, p.columns));
  for (std::size_t which = 0; which < 2; ++which) {
    if (!builder.wants_gradient(which)) continue;
    const Dims own = p.dims(which == 0 ? p.left : p.right);
    const Dims all = which == 0 ? p.result(p.rows, p.inner) : p.result(p.inner, p.columns);
    const dnnl::memory target(dense(*data_type(p.a.dtype), own), engine(), builder.gradient(which).data());
    const dnnl::memory products = own == all ? target : builder.scratch(dense(dnnl::memory::data_type::f32, all));
    if (which == 0) {
      multiply(builder, cotangent, operand(p.b, p.dims(p.right), true), products);
    } else {
      multiply(builder, operand(p.a, p.dims(p.left), true), cotangent, products);
    }
    if (own != all) builder.add_sum(products, target);
  }
}

// C as the primitive's bias: [1 or M, 1 or N]; beta * C, in float, where beta is not one.
dnnl::memory scaled_bias(NodeBuilder& builder, const Value& c, const Dims& dims, float beta) {
  const dnnl::memory plain = builder.dense_view(c, dense(*data_type(c.dtype), dims));
  if (beta == 1.0f) return plain;
  dnnl::memory scaled = builder.scratch(dense("float", dims));
  dnnl::primitive_attr attributes;
  attributes.set_scales_mask(DNNL_ARG_SRC, 0);
  const dnnl::reorder::primitive_desc description(engine(), plain.get_desc(), engine(), scaled.get_desc(), attributes);
  builder.add(dnnl::reorder(description), {{DNNL_ARG_FROM, plain},
                                           {DNNL_ARG_TO, scaled},
                                           {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, builder.scale_memory(beta)}});
  return scaled;
}

void gemm(NodeBuilder& builder) {
  const Value& a = builder.floating(0);
  const Value& b = builder.floating(1);
  if (a.dtype != b.dtype) throw std::invalid_argument("the operands have different dtypes");
  if (a.shape.size() != 2 || b.shape.size() != 2) {
    throw std::invalid_argument("operands of shapes " + sdk::to_string(a.shape) + " and " + sdk::to_string(b.shape) +
                                "; expected matrices");
  }
  const Operand first = operand(a, a.shape, builder.node().integer("transA", 0) != 0);
  const Operand second = operand(b, b.shape, builder.node().integer("transB", 0) != 0);
  const auto alpha = static_cast<float>(builder.node().real("alpha", 1));
  const auto beta = static_cast<float>(builder.node().real("beta", 1));
  const Shape shape = {first.dims[0], second.dims[1]};
  if (first.dims[1] != second.dims[0]) {
    throw std::invalid_argument("shapes " + sdk::to_string(a.shape) + " and " + sdk::to_string(b.shape) +
                                " differ in the dimension that is summed over");
  }
  const bool biased = builder.has(2) && beta != 0;
  if (biased) {
    const Value& c = builder.floating(2);
    if (c.shape.size() > 2 || broadcast(c.shape, shape) != shape) {
      throw std::invalid_argument("C of shape " + sdk::to_string(c.shape) + " cannot be broadcast to " +
                                  sdk::to_string(shape));
    }
  }
  if (builder.is_empty(0, a.dtype, shape)) return;
  if (first.dims[1] == 0) throw sdk::Unsupported("a product that sums over nothing");

  std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, builder.dense_view(a, first.seen)}};
  dnnl::primitive_attr attributes;
  if (alpha != 1.0f) {
    attributes.set_scales_mask(DNNL_ARG_SRC, 0);
    arguments[DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC] = builder.scale_memory(alpha);
  }
  attributes = builder.with_post_operations(a.dtype, shape, attributes);
  const Desc target = dense(a.dtype, shape);
  Desc bias;
  if (biased) {
    const Value& c = builder.input(2);
    arguments[DNNL_ARG_BIAS] = scaled_bias(builder, c, with_leading_ones(c.shape, 2), beta);
    bias = arguments[DNNL_ARG_BIAS].get_desc();
  }
  const auto description = describe(first, second, biased ? &bias : nullptr, target, attributes);
  arguments[DNNL_ARG_WEIGHTS] = builder.in_layout(b, second.seen, description.weights_desc());
  builder.add_post_operands(description, arguments);
  arguments[DNNL_ARG_DST] = builder.output(0, a.dtype, shape).memory;
  builder.add(dnnl::matmul(description), arguments);
}

// dA' = alpha dY transpose(B'), dB' = alpha transpose(A') dY, each as it lies; dC = beta times sums of dY.
void gemm_gradient(NodeBuilder& builder) {
  const Value& a = builder.floating(0);
  const Value& b = builder.floating(1);
  if (a.dtype != b.dtype) throw std::invalid_argument("the operands have different dtypes");
  if (a.shape.size() != 2 || b.shape.size() != 2) {
    throw std::invalid_argument("operands of shapes " + sdk::to_string(a.shape) + " and " + sdk::to_string(b.shape) +
                                "; expected matrices");
  }
  const bool trans_a = builder.node().integer("transA", 0) != 0, trans_b = builder.node().integer("transB", 0) != 0;
  const auto alpha = static_cast<float>(builder.node().real("alpha", 1));
  const auto beta = static_cast<float>(builder.node().real("beta", 1));
  const Shape shape = {a.shape[trans_a ? 1 : 0], b.shape[trans_b ? 0 : 1]};
  if (builder.gradients_are_empty(shape)) return;
  const Value& dy = builder.cotangent();
  if (builder.wants_gradient(0)) {
    const dnnl::memory target = builder.gradient(0).memory;
    if (trans_a) {
      multiply(builder, operand(b, b.shape, trans_b), operand(dy, shape, true), target, alpha);
    } else {
      multiply(builder, operand(dy, shape), operand(b, b.shape, !trans_b), target, alpha);
    }
  }
  if (builder.wants_gradient(1)) {
    const dnnl::memory target = builder.gradient(1).memory;
    if (trans_b) {
      multiply(builder, operand(dy, shape, true), operand(a, a.shape, trans_a), target, alpha);
    } else {
      multiply(builder, operand(a, a.shape, !trans_a), operand(dy, shape), target, alpha);
    }
  }
  if (!builder.wants_gradient(2)) return;
  const Value& c = builder.floating(2);
  if (c.shape.size() > 2 || broadcast(c.shape, shape) != shape) {
    throw std::invalid_argument("C of shape " + sdk::to_string(c.shape) + " cannot be broadcast to " +
                                sdk::to_string(shape));
  }
  const Desc seen = dense(*data_type(c.dtype), with_leading_ones(c.shape, 2));
  builder.add_sum(builder.dense_memory(dy), dnnl::memory(seen, engine(), builder.gradient(2).data()), beta);
}

}  // namespace

Bindings matmul_bindings() {
  return {{"MatMul", matmul}, {"Gemm", gemm}, {"gradient/MatMul", matmul_gradient}, {"gradient/Gemm", gemm_gradient}};
}

}  // namespace opdiff::onednn
