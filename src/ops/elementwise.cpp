#include "ops/elementwise.h"

#include <algorithm>

namespace opdiff {

std::vector<Sample> refused_unary(std::string_view op, DType wrong) {
  const Tensor x = Tensor::zeros(DType::f32, {2});
  return {refused_sample(op, {x}, {{"alpha", 1.0f}}, "alpha"), refused_sample(op, {x, x}, {}, "inputs"),
          refused_sample(op, {Tensor::zeros(wrong, {2})}, {}, "type")};
}

Shape repeated_extents(const Shape& own, const Shape& shape) {
  const std::size_t missing = shape.size() - own.size();
  Shape extents;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (d < missing || own[d - missing] != shape[d]) extents.push_back(shape[d]);
  return extents;
}

Expected<Types> infer_binary(const Call& call) {
  if (call.dtype(1) != call.dtype(0))
    return make_error("B has type {}, A has {}", dtype_name(call.dtype(1)), dtype_name(call.dtype(0)));
  OPDIFF_TRY(const Shape shape, broadcast_shapes(call.shape(0), call.shape(1)));
  return Types{{call.dtype(0), shape}};
}

Sample sample_binary(SampleContext& c, std::string_view op) {
  Rng& rng = c.rng();
  Shape a = c.shape_or_empty(0, 5, 8), b = a;
  // One of the two, or both on different axes, repeats: leading axes left out, others 1.
  for (std::size_t d = 0; d < a.size(); ++d)
    if (rng.chance(0.3)) (rng.chance(0.3) ? a : b)[d] = 1;
  Shape& shorter = rng.chance(0.3) ? a : b;
  if (rng.chance(0.3)) shorter.erase(shorter.begin(), shorter.begin() + rng.integer(0, std::ssize(shorter)));
  Sample s = c.make(op, {c.elements(a), c.elements(b)});
  s.initialiser[1] = rng.chance(0.3);
  // Integers of 8 and 16 bits entered with opset 14.
  const DType dtype = c.dtype();
  if (is_integer(dtype) && dtype_size(dtype) < 4) s.opset = std::max(s.opset, 14);
  return s;
}

std::vector<Sample> refused_binary(std::string_view op) {
  const Tensor x = Tensor::zeros(DType::f32, {2, 3});
  return {refused_sample(op, {x, Tensor::zeros(DType::f32, {2})}, {}, "broadcast"),
          refused_sample(op, {x, Tensor::zeros(DType::f64, {2, 3})}, {}, "type"), refused_sample(op, {x}, {}, "inputs"),
          refused_sample(op, {x, x}, {{"axis", std::int64_t{1}}}, "axis"),
          refused_sample(op, {Tensor::zeros(DType::boolean, {2}), Tensor::zeros(DType::boolean, {2})}, {}, "type")};
}

}  // namespace opdiff
