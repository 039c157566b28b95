// A dense row-major tensor: dtype, shape and shared, 64-byte aligned bytes. Copies share the bytes; whoever writes
// makes a tensor of its own first (Tensor::zeros, Tensor::clone).
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace opdiff {

class Tensor {
 public:
  Tensor() : Tensor(zeros(DType::f32, {0})) {}

  static Tensor zeros(DType dtype, Shape shape);
  // Its bytes are whatever was there: for a caller that writes every one.
  static Tensor for_overwrite(DType dtype, Shape shape);
  // Copies `bytes`, whose length must be element_count * dtype_size (CHECKed).
  static Tensor from_bytes(DType dtype, Shape shape, std::span<const std::byte> bytes);
  // Rounds each value once to `dtype` (nearest even; integers: truncation of values that are in range).
  static Tensor from_doubles(DType dtype, Shape shape, std::span<const double> values);
  static Tensor from_int64s(DType dtype, Shape shape, std::span<const std::int64_t> values);
  template <class T>
  static Tensor scalar_like(DType dtype, T value) {
    const double v = static_cast<double>(value);
    return from_doubles(dtype, {}, {&v, 1});
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  std::size_t byte_size() const { return static_cast<std::size_t>(size_) * dtype_size(dtype_); }
  std::span<const std::byte> bytes() const { return {data_.get(), byte_size()}; }
  std::span<std::byte> mutable_bytes() { return {data_.get(), byte_size()}; }

  // Raw elements; sizeof(T) must be the element's (CHECKed). f16 and bf16 are std::uint16_t, bool is std::uint8_t.
  template <class T>
  std::span<const T> as() const {
    OPDIFF_CHECK(sizeof(T) == dtype_size(dtype_));
    return {reinterpret_cast<const T*>(data_.get()), static_cast<std::size_t>(size_)};
  }
  template <class T>
  std::span<T> mutable_as() {
    OPDIFF_CHECK(sizeof(T) == dtype_size(dtype_));
    return {reinterpret_cast<T*>(data_.get()), static_cast<std::size_t>(size_)};
  }

  // One element as double (i64 and u64 beyond 2^53 are rounded) or int64 (floats truncated).
  double at(std::int64_t index) const;
  std::int64_t int_at(std::int64_t index) const;
  std::vector<double> to_doubles() const;
  std::vector<std::int64_t> to_int64s() const;

  Tensor clone() const;
  Tensor reshaped(Shape shape) const;  // same bytes; the counts must agree (CHECKed)
  bool bit_equal(const Tensor& other) const;

 private:
  explicit Tensor(std::nullptr_t) {}  // no bytes yet; zeros() fills it in

  DType dtype_ = DType::f32;
  Shape shape_;
  std::int64_t size_ = 0;
  std::shared_ptr<std::byte[]> data_;
};

// The type of a tensor whose shape may be unknown before the model runs.
struct TensorType {
  DType dtype = DType::f32;
  std::optional<Shape> shape;
};

// "float[2,3]".
std::string to_string(const TensorType& type);

}  // namespace opdiff
