// Element types of tensors, named as ONNX names them, and bit-exact conversions of single elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/format.h"

namespace opdiff {

enum class DType : std::uint8_t { f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean };
inline constexpr int kDTypeCount = 13;

// "double", "float", "float16", "bfloat16", "int8", ..., "bool": the names of the wire and of messages.
std::string_view dtype_name(DType dtype);
// Accepts ONNX's names and the short ones (f64, f32, f16, bf16, i8, ...).
std::optional<DType> parse_dtype(std::string_view name);
// TensorProto.DataType values (onnx.proto).
int onnx_code(DType dtype);
std::optional<DType> dtype_from_onnx_code(int code);

std::size_t dtype_size(DType dtype);
bool is_float(DType dtype);
bool is_signed_integer(DType dtype);
bool is_unsigned_integer(DType dtype);
inline bool is_integer(DType dtype) { return is_signed_integer(dtype) || is_unsigned_integer(dtype); }
// Format of a floating type; CHECKs is_float.
const Format& format_of(DType dtype);

// Bits of f16 and bf16. From double: one rounding, to nearest even; NaN becomes a quiet NaN.
std::uint16_t to_f16_bits(double x);
std::uint16_t to_bf16_bits(double x);
double from_f16_bits(std::uint16_t bits);
double from_bf16_bits(std::uint16_t bits);

}  // namespace opdiff
