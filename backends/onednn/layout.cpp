#include "layout.h"

#include <algorithm>
#include <cstring>

namespace opdiff::onednn {

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::stream& stream() {
  static dnnl::stream instance(engine());
  return instance;
}

std::optional<dnnl::memory::data_type> data_type(const std::string& dtype) {
  using Type = dnnl::memory::data_type;
  if (dtype == "float") return Type::f32;
  if (dtype == "float16") return Type::f16;
  if (dtype == "bfloat16") return Type::bf16;
  if (dtype == "int32") return Type::s32;
  if (dtype == "int8") return Type::s8;
  if (dtype == "uint8") return Type::u8;
  return std::nullopt;
}

bool is_floating(const std::string& dtype) { return dtype == "float" || dtype == "float16" || dtype == "bfloat16"; }

Dims dims_of(const Shape& shape) { return shape.empty() ? Dims{1} : Dims(shape.begin(), shape.end()); }

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(dims[i], 1);
  return strides;
}

Desc dense(dnnl::memory::data_type type, const Dims& dims) {
  if (dims.size() > DNNL_MAX_NDIMS) {
    throw sdk::Unsupported("rank " + std::to_string(dims.size()) + " is above oneDNN's " +
                           std::to_string(DNNL_MAX_NDIMS));
  }
  return Desc(dims, type, dense_strides(dims));
}

Desc dense(const std::string& dtype, const Shape& shape) {
  if (const auto type = data_type(dtype)) {
    sdk::element_count(shape);  // refuses what no memory holds
    return dense(*type, dims_of(shape));
  }
  const auto bytes = sdk::element_count(shape) * sdk::element_size(dtype);
  return dense(dnnl::memory::data_type::u8, {static_cast<std::int64_t>(bytes)});
}

Desc any_layout(const std::string& dtype, const Dims& dims) {
  return Desc(dims, data_type(dtype).value(), dnnl::memory::format_tag::any);
}

Shape with_leading_ones(const Shape& shape, std::size_t rank) {
  Shape result(rank > shape.size() ? rank - shape.size() : 0, 1);
  result.insert(result.end(), shape.begin(), shape.end());
  return result;
}

Shape broadcast(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape result = with_leading_ones(a, rank);
  const Shape other = with_leading_ones(b, rank);
  for (std::size_t i = 0; i < rank; ++i) {
    if (result[i] == 1) {
      result[i] = other[i];
    } else if (other[i] != 1 && other[i] != result[i]) {
      throw std::invalid_argument("shapes " + sdk::to_string(a) + " and " + sdk::to_string(b) +
                                  " cannot be broadcast to one");
    }
  }
  return result;
}

std::size_t normal_axis(std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) {
    throw std::invalid_argument("axis " + std::to_string(axis) + " is outside a tensor of rank " +
                                std::to_string(rank));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

void copy_strided(const std::byte* from, std::int64_t offset, const Dims& strides, const Shape& shape,
                  std::size_t element_size, std::byte* to) {
  const std::size_t count = sdk::element_count(shape);
  std::vector<std::int64_t> index(shape.size(), 0);
  std::int64_t position = offset;
  for (std::size_t n = 0; n < count; ++n) {
    std::memcpy(to + n * element_size, from + position * static_cast<std::int64_t>(element_size), element_size);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      position += strides[axis];
      if (++index[axis] < shape[axis]) break;
      position -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace opdiff::onednn
