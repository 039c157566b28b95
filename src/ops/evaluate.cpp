#include "ops/evaluate.h"

#include <algorithm>

#include "ops/finish.h"

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
  } else if constexpr (std::is_same_v<T, double>) {
    return Tensor::from_doubles(dtype, shape, values);
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
std::vector<std::vector<Enclosure<V>>> enclose_with(void (*kernel)(Frame<Enclosure<V>>&), const Call& call,
                                                    const Profile& profile, int formula) {
  const ProfileScope scope(profile);
  return run(kernel, call, formula);
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
  if (working_dtype(op, call) == DType::f64)
    return finish_outputs(op, call, enclose_with(op.kernels.enclosure_quad, call, profile, formula), profile);
  return finish_outputs(op, call, enclosures(op, call, profile, formula), profile);
}

std::vector<std::vector<Enclosure<double>>> enclosures(const MetaOperator& op, const Call& call, const Profile& profile,
                                                       int formula) {
  return enclosures(op, call, profile, formula, -1, nullptr);
}

std::vector<std::vector<Enclosure<double>>> enclosures(const MetaOperator& op, const Call& call, const Profile& profile,
                                                       int formula, int streamed, Frame<Enclosure<double>>::Take take) {
  const ProfileScope scope(profile);
  Frame<Enclosure<double>> frame(call, formula);
  frame.stream(streamed, std::move(take));
  op.kernels.enclosure(frame);
  return std::move(frame.outputs());
}

template <class V>
std::vector<EnclosedTensor> finish_outputs(const MetaOperator& op, const Call& call,
                                           const std::vector<std::vector<Enclosure<V>>>& values,
                                           const Profile& profile) {
  const Types types = types_of(op, call);
  std::vector<EnclosedTensor> outputs;
  for (std::size_t k = 0; k < values.size(); ++k)
    outputs.push_back(finish(values[k], types[k].dtype, *types[k].shape, profile));
  return outputs;
}

template std::vector<EnclosedTensor> finish_outputs(const MetaOperator&, const Call&,
                                                    const std::vector<std::vector<Enclosure<double>>>&, const Profile&);

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
  const Finish<V> finished(profile);
  for (std::size_t i = 0; i < n; ++i) {
    const EnclosedElement e = finished(values[i]);
    result.centre[i] = e.centre;
    if constexpr (std::is_same_v<V, Quad>) result.low[i] = e.low;
    result.radius[i] = e.radius;
    result.deviation[i] = e.deviation;
    result.rho[i] = e.rho;
    result.overflow[i] = e.overflow;
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
