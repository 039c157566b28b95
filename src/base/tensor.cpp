#include "base/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace opdiff {
namespace {

std::shared_ptr<std::byte[]> allocate(std::size_t bytes) {
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](std::byte* p) { std::free(p); }};
}

// Calls f with a zero of the element's C++ type; f16 and bf16 are handled by the caller.
template <class F>
auto with_integer(DType dtype, F f) {
  switch (dtype) {
    case DType::i8: return f(std::int8_t{});
    case DType::i16: return f(std::int16_t{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::u16: return f(std::uint16_t{});
    case DType::u32: return f(std::uint32_t{});
    case DType::u64: return f(std::uint64_t{});
    default: return f(std::uint8_t{});
  }
}

}  // namespace

Tensor Tensor::for_overwrite(DType dtype, Shape shape) {
  Tensor result(nullptr);
  result.dtype_ = dtype;
  result.shape_ = std::move(shape);
  result.size_ = element_count(result.shape_);
  result.data_ = allocate(result.byte_size());
  return result;
}

Tensor Tensor::zeros(DType dtype, Shape shape) {
  Tensor result = for_overwrite(dtype, std::move(shape));
  std::memset(result.data_.get(), 0, result.byte_size());
  return result;
}

Tensor Tensor::from_bytes(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  Tensor result = for_overwrite(dtype, std::move(shape));
  OPDIFF_CHECK(bytes.size() == result.byte_size());
  if (!bytes.empty()) std::memcpy(result.data_.get(), bytes.data(), bytes.size());
  return result;
}

Tensor Tensor::from_doubles(DType dtype, Shape shape, std::span<const double> values) {
  Tensor result = for_overwrite(dtype, std::move(shape));
  OPDIFF_CHECK(static_cast<std::int64_t>(values.size()) == result.size());
  const std::size_t n = values.size();
  switch (dtype) {
    case DType::f64:
      if (n) std::memcpy(result.data_.get(), values.data(), n * sizeof(double));
      break;
    case DType::f32: {
      auto out = result.mutable_as<float>();
      for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(values[i]);
      break;
    }
    case DType::f16: {
      auto out = result.mutable_as<std::uint16_t>();
      for (std::size_t i = 0; i < n; ++i) out[i] = to_f16_bits(values[i]);
      break;
    }
    case DType::bf16: {
      auto out = result.mutable_as<std::uint16_t>();
      for (std::size_t i = 0; i < n; ++i) out[i] = to_bf16_bits(values[i]);
      break;
    }
    default:
      with_integer(dtype, [&](auto zero) {
        using T = decltype(zero);
        auto out = result.mutable_as<T>();
        for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(values[i]);
      });
  }
  return result;
}

Tensor Tensor::from_int64s(DType dtype, Shape shape, std::span<const std::int64_t> values) {
  if (is_float(dtype)) {
    const std::vector<double> doubles(values.begin(), values.end());
    return from_doubles(dtype, std::move(shape), doubles);
  }
  Tensor result = for_overwrite(dtype, std::move(shape));
  OPDIFF_CHECK(static_cast<std::int64_t>(values.size()) == result.size());
  with_integer(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto out = result.mutable_as<T>();
    for (std::size_t i = 0; i < values.size(); ++i)
      out[i] = dtype == DType::boolean ? static_cast<T>(values[i] != 0) : static_cast<T>(values[i]);
  });
  return result;
}

double Tensor::at(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  switch (dtype_) {
    case DType::f64: return as<double>()[i];
    case DType::f32: return as<float>()[i];
    case DType::f16: return from_f16_bits(as<std::uint16_t>()[i]);
    case DType::bf16: return from_bf16_bits(as<std::uint16_t>()[i]);
    default: return with_integer(dtype_, [&](auto zero) { return static_cast<double>(as<decltype(zero)>()[i]); });
  }
}

std::int64_t Tensor::int_at(std::int64_t index) const {
  if (is_float(dtype_)) return static_cast<std::int64_t>(at(index));
  return with_integer(dtype_, [&](auto zero) {
    return static_cast<std::int64_t>(as<decltype(zero)>()[static_cast<std::size_t>(index)]);
  });
}

std::vector<double> Tensor::to_doubles() const {
  if (dtype_ == DType::f32) {
    const auto in = as<float>();
    return {in.begin(), in.end()};
  }
  std::vector<double> values(static_cast<std::size_t>(size_));
  for (std::int64_t i = 0; i < size_; ++i) values[static_cast<std::size_t>(i)] = at(i);
  return values;
}

std::vector<std::int64_t> Tensor::to_int64s() const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size_));
  for (std::int64_t i = 0; i < size_; ++i) values[static_cast<std::size_t>(i)] = int_at(i);
  return values;
}

Tensor Tensor::clone() const { return from_bytes(dtype_, shape_, bytes()); }

Tensor Tensor::reshaped(Shape shape) const {
  OPDIFF_CHECK(element_count(shape) == size_);
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

bool Tensor::bit_equal(const Tensor& other) const {
  return dtype_ == other.dtype_ && shape_ == other.shape_ &&
         std::memcmp(data_.get(), other.data_.get(), byte_size()) == 0;
}

std::string to_string(const TensorType& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), type.shape ? to_string(*type.shape) : "[?]");
}

}  // namespace opdiff
