#include "graph/onnx_tensor.h"

#include <charconv>
#include <limits>

#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <onnx/onnx_pb.h>

#include "base/file.h"

namespace opdiff {
namespace {

Expected<DType> dtype_of(const onnx::TensorProto& proto) {
  // Values after bfloat16 are newer than the installed onnx-ml.proto.
  static constexpr const char* kNames[] = {
      "undefined", "float",      "uint8",      "int8",         "uint16",         "int16",      "int32",
      "int64",     "string",     "bool",       "float16",      "double",         "uint32",     "uint64",
      "complex64", "complex128", "bfloat16",   "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
      "uint4",     "int4",       "float4e2m1", "float8e8m0",   "uint2",          "int2"};
  const int code = proto.data_type();
  if (const auto dtype = dtype_from_onnx_code(code)) return *dtype;
  if (code >= 0 && code < static_cast<int>(std::size(kNames)))
    return make_error("has dtype {}, which is not supported", kNames[code]);
  return make_error("has the unknown dtype {}", code);
}

// One of TensorProto's typed fields, one value an element.
template <class T, class Field>
Expected<void> copy_field(const Field& field, const char* field_name, Tensor& tensor) {
  auto out = tensor.mutable_as<T>();
  if (static_cast<std::size_t>(field.size()) != out.size())
    return make_error("has shape {}, so {} elements, but {} in {}", to_string(tensor.shape()), out.size(), field.size(),
                      field_name);
  using Value = typename Field::value_type;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Value value = field.Get(static_cast<int>(i));
    if constexpr (std::is_integral_v<Value>) {
      if (!std::in_range<T>(value))
        return make_error("element {} of {} is {}, which is no {}", i, field_name, value, dtype_name(tensor.dtype()));
    }
    out[i] = static_cast<T>(value);
  }
  return {};
}

Expected<void> copy_typed(const onnx::TensorProto& proto, Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::f64: return copy_field<double>(proto.double_data(), "double_data", tensor);
    case DType::f32: return copy_field<float>(proto.float_data(), "float_data", tensor);
    case DType::i8: return copy_field<std::int8_t>(proto.int32_data(), "int32_data", tensor);
    case DType::i16: return copy_field<std::int16_t>(proto.int32_data(), "int32_data", tensor);
    case DType::i32: return copy_field<std::int32_t>(proto.int32_data(), "int32_data", tensor);
    case DType::i64: return copy_field<std::int64_t>(proto.int64_data(), "int64_data", tensor);
    case DType::u32: return copy_field<std::uint32_t>(proto.uint64_data(), "uint64_data", tensor);
    case DType::u64: return copy_field<std::uint64_t>(proto.uint64_data(), "uint64_data", tensor);
    case DType::f16:
    case DType::bf16:
    case DType::u16: return copy_field<std::uint16_t>(proto.int32_data(), "int32_data", tensor);
    case DType::u8:
    case DType::boolean: return copy_field<std::uint8_t>(proto.int32_data(), "int32_data", tensor);
  }
  return make_error("has an unknown dtype");
}

Expected<std::uint64_t> parse_count(const std::string& key, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return make_error("external data: {} '{}' is no number of bytes", key, text);
  return value;
}

// folder/location, which must be a file inside the folder once symbolic links are followed.
Expected<std::filesystem::path> external_path(const std::filesystem::path& folder, const std::string& location) {
  namespace fs = std::filesystem;
  if (folder.empty()) return make_error("has external data, and there is no model folder to look in");
  if (location.empty() || location.find('\0') != std::string::npos)
    return make_error("external data: the location is empty or has a zero byte");
  if (fs::path(location).is_absolute())
    return make_error("external data: location '{}' is absolute; it must be inside the model's folder", location);
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return make_error("external data: the model's folder cannot be opened: {}", error.message());
  // Refused by name before any look at the disk, then again after links are followed.
  const fs::path named = (root / location).lexically_normal();
  const auto is_inside = [&root](const fs::path& path) {
    return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
  };
  if (!is_inside(named)) return make_error("external data: location '{}' points outside the model's folder", location);
  const fs::path real = fs::canonical(root / location, error);
  if (error) return make_error("external data: cannot open '{}': {}", location, error.message());
  if (!is_inside(real))
    return make_error("external data: location '{}' is a link that points outside the model's folder", location);
  return real;
}

}  // namespace

Expected<TensorReader::FilePart> TensorReader::locate_external(const onnx::TensorProto& proto,
                                                               std::uint64_t bytes) const {
  std::string location;
  FilePart part;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") {
      OPDIFF_TRY(part.offset, parse_count(entry.key(), entry.value()));
    }
    if (entry.key() == "length") {
      OPDIFF_TRY(const std::uint64_t length, parse_count(entry.key(), entry.value()));
      if (length != bytes)
        return make_error("external data: length is {}, but dtype and shape take {} bytes", length, bytes);
    }
  }
  OPDIFF_TRY(part.path, external_path(folder_, location));
  OPDIFF_TRY(const std::uint64_t size, regular_file_size(part.path));
  if (part.offset > size || bytes > size - part.offset)
    return make_error("external data: {} bytes at offset {} lie outside '{}', which has {} bytes", bytes, part.offset,
                      location, size);
  return part;
}

Expected<Tensor> TensorReader::read(const onnx::TensorProto& proto) {
  OPDIFF_TRY(const DType dtype, dtype_of(proto));
  if (proto.has_segment()) return make_error("is stored in segments, which is not supported");
  const Shape shape(proto.dims().begin(), proto.dims().end());
  OPDIFF_TRY(const std::int64_t count, checked_element_count(shape));
  const std::uint64_t bytes = static_cast<std::uint64_t>(count) * dtype_size(dtype);

  // Nothing is allocated before the file is known to have as many bytes as the shape claims.
  const bool is_external = proto.data_location() == onnx::TensorProto::EXTERNAL;
  const bool is_raw = proto.has_raw_data();
  if (is_raw && !is_external && proto.raw_data().size() != bytes)
    return make_error("has shape {}, so {} bytes of {}, but {} in raw_data", to_string(shape), bytes, dtype_name(dtype),
                      proto.raw_data().size());
  const auto fields = static_cast<std::uint64_t>(proto.float_data_size()) + proto.double_data_size() +
                      proto.int32_data_size() + proto.int64_data_size() + proto.uint64_data_size();
  if (!is_raw && !is_external && fields < static_cast<std::uint64_t>(count))
    return make_error("has shape {}, so {} elements, but only {} are in the file", to_string(shape), count, fields);
  FilePart part;
  if (is_external) {
    OPDIFF_TRY(part, locate_external(proto, bytes));
  }

  if (is_external || !is_raw) {
    if (bytes > bytes_left_)
      return make_error("takes {} bytes; a model may take {} with all its tensors", bytes, kMaxModelBytes);
    bytes_left_ -= bytes;
  }
  Tensor tensor = Tensor::zeros(dtype, shape);
  if (is_external) {
    auto* destination = reinterpret_cast<char*>(tensor.mutable_bytes().data());
    OPDIFF_RETURN_IF_ERROR(read_file_part(part.path, part.offset, destination, bytes));
  } else if (is_raw) {
    std::memcpy(tensor.mutable_bytes().data(), proto.raw_data().data(), bytes);
  } else {
    OPDIFF_RETURN_IF_ERROR(copy_typed(proto, tensor));
  }
  if (dtype == DType::boolean)
    for (auto& value : tensor.mutable_as<std::uint8_t>()) value = value != 0;
  return tensor;
}

void write_tensor(const Tensor& tensor, const std::string& name, onnx::TensorProto* proto) {
  proto->set_name(name);
  proto->set_data_type(onnx_code(tensor.dtype()));
  for (const std::int64_t dimension : tensor.shape()) proto->add_dims(dimension);
  proto->set_raw_data(tensor.bytes().data(), tensor.byte_size());
}

}  // namespace opdiff
