#include "ops/evaluate.h"

#include <algorithm>

namespace opdiff {
namespace {

AttributeKind kind_of(const Attribute& attribute) {
  static constexpr AttributeKind kKinds[] = {AttributeKind::integer, AttributeKind::real,     AttributeKind::text,
                                             AttributeKind::tensor,  AttributeKind::integers, AttributeKind::reals,
                                             AttributeKind::texts,   AttributeKind::tensor};
  return kKinds[attribute.index()];
}

std::string_view kind_name(AttributeKind kind) {
  static constexpr std::string_view kNames[] = {"integer",          "float",          "string",         "tensor",
                                                "list of integers", "list of floats", "list of strings"};
  return kNames[static_cast<int>(kind)];
}

Expected<void> check_attributes(const MetaOperator& op, const Call& call) {
  for (const auto& [name, value] : call.node().attributes) {
    const auto spec = std::find_if(op.attributes.begin(), op.attributes.end(), [&](const AttributeSpec& s) {
      return s.name == name && s.since <= call.opset() && call.opset() <= s.until;
    });
    if (spec == op.attributes.end())
      return make_error("{}: unknown attribute '{}' (opset {})", display_name(op), name, call.opset());
    if (spec->kind != kind_of(value))
      return make_error("{}: attribute '{}' is a {}, expected a {}", display_name(op), name, kind_name(kind_of(value)),
                        kind_name(spec->kind));
  }
  return {};
}

template <class T>
std::vector<std::vector<T>> run(void (*kernel)(Frame<T>&), const Call& call, int formula) {
  Frame<T> frame(call, formula);
  kernel(frame);
  return std::move(frame.outputs());
}

template <class T>
Tensor round_to_tensor(DType dtype, const Shape& shape, const std::vector<T>& values) {
  if constexpr (std::is_integral_v<T>) {
    const std::vector<std::int64_t> integers(values.begin(), values.end());
    return Tensor::from_int64s(dtype, shape, integers);
  } else {
    std::vector<double> doubles(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, Working>)
        doubles[i] = values[i].v;
      else
        doubles[i] = static_cast<double>(values[i]);
    }
    return Tensor::from_doubles(dtype, shape, doubles);
  }
}

Types types_of(const MetaOperator& op, const Call& call) {
  const auto types = infer_call(op, call);
  OPDIFF_CHECK(types.has_value());
  return *types;
}

template <class T>
std::vector<Tensor> round_outputs(const MetaOperator& op, const Call& call,
                                  const std::vector<std::vector<T>>& results) {
  const Types types = types_of(op, call);
  std::vector<Tensor> outputs;
  for (std::size_t k = 0; k < results.size(); ++k)
    outputs.push_back(round_to_tensor(types[k].dtype, *types[k].shape, results[k]));
  for (std::size_t k = results.size(); k < types.size(); ++k)
    outputs.push_back(op.integer_output(call, static_cast<int>(k)));
  return outputs;
}

template <class V>
std::vector<EnclosedTensor> enclose_with(void (*kernel)(Frame<Enclosure<V>>&), const MetaOperator& op, const Call& call,
                                         const Profile& profile, int formula) {
  const Types types = types_of(op, call);
  const ProfileScope scope(profile);
  const auto results = run(kernel, call, formula);
  std::vector<EnclosedTensor> outputs;
  for (std::size_t k = 0; k < results.size(); ++k)
    outputs.push_back(finish(results[k], types[k].dtype, *types[k].shape, profile));
  return outputs;
}

}  // namespace

Expected<Types> infer_call(const MetaOperator& op, const Call& call) {
  const int count = call.input_count();
  if (count < op.inputs.min || (op.inputs.max >= 0 && count > op.inputs.max))
    return make_error("{}: {} inputs given, {} to {} expected", display_name(op), count, op.inputs.min,
                      op.inputs.max < 0 ? std::string("any number") : std::to_string(op.inputs.max));
  for (int k = 0; k < op.inputs.min && op.domain != kGradientDomain; ++k)
    if (!call.has(k)) return make_error("{}: input {} is missing", display_name(op), k);
  if (call.node().outputs.size() > static_cast<std::size_t>(op.outputs.max < 0 ? 1 << 20 : op.outputs.max))
    return make_error("{}: {} outputs named, at most {} exist", display_name(op), call.node().outputs.size(),
                      op.outputs.max);
  OPDIFF_RETURN_IF_ERROR(check_attributes(op, call));
  if (op.inputs.min > 0 && !(op.types & type_bit(working_dtype(op, call))))
    return make_error("{}: input {} has type {}, which the operator does not take", display_name(op), op.leading,
                      dtype_name(working_dtype(op, call)));
  for (int k = 0; k < count; ++k)
    if (call.has(k) && !call.has_shape(k)) {
      // Shapes follow once the data are there; the dtypes are known already.
      if (!op.output_dtype) return Types{{working_dtype(op, call), std::nullopt}};
      Types types;
      for (std::size_t output = 0; output < call.node().outputs.size(); ++output)
        types.push_back({op.output_dtype(call, static_cast<int>(output)), std::nullopt});
      return types;
    }
  auto types = op.infer(call);
  if (!types) return make_error("{}: {}", display_name(op), types.error().message);
  for (const TensorType& type : *types)
    if (type.shape)
      if (const auto n = checked_element_count(*type.shape); !n)
        return make_error("{}: output {}", display_name(op), n.error().message);
  return types;
}

Tensor move_elements(const Movement& movement, const Call& call, int leading) {
  const Tensor& first = *call.tensor(leading);
  if (movement.source.empty() && element_count(movement.shape) == first.size()) return first.reshaped(movement.shape);
  Tensor result = Tensor::zeros(first.dtype(), movement.shape);
  const std::size_t size = dtype_size(first.dtype());
  std::byte* out = result.mutable_bytes().data();
  for (std::size_t i = 0; i < movement.source.size(); ++i) {
    if (movement.source[i] < 0) {
      if (movement.fill) std::memcpy(out + i * size, movement.fill->bytes().data(), size);
      continue;
    }
    const Tensor& from = movement.which.empty() ? first : *call.tensor(movement.which[i]);
    std::memcpy(out + i * size, from.bytes().data() + static_cast<std::size_t>(movement.source[i]) * size, size);
  }
  return result;
}

std::vector<Tensor> values(const MetaOperator& op, const Call& call) {
  if (op.exact) return op.exact(call);
  if (op.movement) {
    std::vector<Tensor> outputs{move_elements(op.movement(call), call, op.leading)};
    for (std::size_t k = 1; k < types_of(op, call).size(); ++k)
      outputs.push_back(op.integer_output(call, static_cast<int>(k)));
    return outputs;
  }
  const DType dtype = working_dtype(op, call);
  if (is_unsigned_integer(dtype)) return round_outputs(op, call, run(op.kernels.unsigned_integer, call, 0));
  if (is_signed_integer(dtype)) return round_outputs(op, call, run(op.kernels.integer, call, 0));
  if (dtype == DType::f64) return round_outputs(op, call, run(op.kernels.quad, call, 0));
  return round_outputs(op, call, run(op.kernels.f64, call, 0));
}

std::vector<EnclosedTensor> enclose(const MetaOperator& op, const Call& call, const Profile& profile, int formula) {
  return working_dtype(op, call) == DType::f64 ? enclose_with(op.kernels.enclosure_quad, op, call, profile, formula)
                                               : enclose_with(op.kernels.enclosure, op, call, profile, formula);
}

std::vector<Tensor> work(const MetaOperator& op, const Call& call, const Profile& profile, int formula) {
  const ProfileScope scope(profile);
  return round_outputs(op, call, run(op.kernels.working, call, formula));
}

template <class V>
EnclosedTensor finish(const std::vector<Enclosure<V>>& values, DType dtype, const Shape& shape,
                      const Profile& profile) {
  const std::size_t n = values.size();
  EnclosedTensor result{dtype,
                        shape,
                        std::vector<double>(n),
                        {},
                        std::vector<double>(n),
                        std::vector<double>(n),
                        std::vector<double>(n),
                        std::vector<std::uint8_t>(n)};
  if constexpr (std::is_same_v<V, Quad>) result.low.resize(n);
  const Format& storage = profile.storage;
  const double u = storage.unit_roundoff(), eta = storage.eta(), lambda = storage.lambda(),
               largest = storage.max_finite();
  const double finest = std::min(profile.inner.unit_roundoff(), profile.sum.unit_roundoff());
  // The centre was computed by the same formula with unit roundoff u(V): its own radius is the radius times u(V) / u.
  const double own = kUnitRoundoff<V> / finest;
  // Every operation ends with a rounding to the inner format (sums, too: numerics/sum.h).
  const bool already_rounded = storage == profile.inner && storage.digits <= profile.sum.digits;
  for (std::size_t i = 0; i < n; ++i) {
    const Enclosure<V>& x = values[i];
    const double m = x.magnitude();
    result.centre[i] = x.value();
    if constexpr (std::is_same_v<V, Quad>)
      result.low[i] = math::is_finite(x.v) ? static_cast<double>(x.v - static_cast<Quad>(result.centre[i])) : 0;
    result.overflow[i] = x.overflow;
    if (!math::is_finite(x.v)) continue;
    if (!(x.e < kInfinity) || !(m <= std::numeric_limits<double>::max())) {
      if (m + x.e > largest) result.overflow[i] |= x.v > 0 ? kPlusInfinity : kMinusInfinity;
      result.radius[i] = result.deviation[i] = kInfinity;
      // n u >= 1 in some sum: the worst case says nothing, the deviation is as good as ever.
      if (const auto variance = x.variance() + (u * m) * (u * m) / 3; m <= largest && variance < kInfinity) {
        result.deviation[i] = static_cast<double>(std::sqrt(variance));
        result.rho[i] = std::max(result.deviation[i] * own, kUnitRoundoff<V> * m);
      }
      continue;
    }
    using Square = typename Enclosure<V>::Square;
    double radius = x.e;
    Square variance = x.variance();
    result.rho[i] = radius * own;
    const bool exact = x.exact() && representable(x.value(), storage) && static_cast<V>(x.value()) == x.v;
    if (!already_rounded && !exact) {
      radius = (radius + std::max(u * (m + radius), eta / 2)) * kOutward;
      variance += Square(u * m) * (u * m) / 3 + (m < lambda ? Square(eta) * eta / 12 : Square(0));
      result.rho[i] = std::max(result.rho[i], kUnitRoundoff<V> * m);
      if (profile.flush_to_zero && m - x.e < lambda) {
        radius += lambda;
        if (m < lambda) variance += Square(m) * m;
      }
    }
    if (m + radius > largest) result.overflow[i] |= x.v > 0 ? kPlusInfinity : kMinusInfinity;
    result.radius[i] = radius;
    // Where a deviation is below double's range, its smallest number stands for it.
    result.deviation[i] = static_cast<double>(std::sqrt(variance));
    if (variance > 0) result.deviation[i] = std::max(result.deviation[i], std::numeric_limits<double>::denorm_min());
  }
  return result;
}

template EnclosedTensor finish(const std::vector<Enclosure<double>>&, DType, const Shape&, const Profile&);
template EnclosedTensor finish(const std::vector<Enclosure<Quad>>&, DType, const Shape&, const Profile&);

const MetaOperator* find_operator(std::string_view domain, std::string_view name) {
  const bool gradient = domain == kGradientDomain;
  if (domain == "ai.onnx") domain = "";
  for (const MetaOperator* op : all_operators())
    if (op->name == name && (gradient || op->domain == domain)) return gradient ? op->gradient : op;
  return nullptr;
}

}  // namespace opdiff
