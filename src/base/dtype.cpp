#include "base/dtype.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace opdiff {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::string_view short_name;
  int onnx;
  std::size_t size;
};

constexpr Row kRows[kDTypeCount] = {
    {DType::f64, "double", "f64", 11, 8},   {DType::f32, "float", "f32", 1, 4},
    {DType::f16, "float16", "f16", 10, 2},  {DType::bf16, "bfloat16", "bf16", 16, 2},
    {DType::i8, "int8", "i8", 3, 1},        {DType::i16, "int16", "i16", 5, 2},
    {DType::i32, "int32", "i32", 6, 4},     {DType::i64, "int64", "i64", 7, 8},
    {DType::u8, "uint8", "u8", 2, 1},       {DType::u16, "uint16", "u16", 4, 2},
    {DType::u32, "uint32", "u32", 12, 4},   {DType::u64, "uint64", "u64", 13, 8},
    {DType::boolean, "bool", "bool", 9, 1},
};

const Row& row(DType dtype) { return kRows[static_cast<int>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Row& r : kRows)
    if (name == r.name || name == r.short_name) return r.dtype;
  if (name == "float32") return DType::f32;
  if (name == "float64") return DType::f64;
  return std::nullopt;
}

int onnx_code(DType dtype) { return row(dtype).onnx; }

std::optional<DType> dtype_from_onnx_code(int code) {
  for (const Row& r : kRows)
    if (code == r.onnx) return r.dtype;
  return std::nullopt;
}

std::size_t dtype_size(DType dtype) { return row(dtype).size; }
bool is_float(DType dtype) { return dtype <= DType::bf16; }
bool is_signed_integer(DType dtype) { return dtype >= DType::i8 && dtype <= DType::i64; }
bool is_unsigned_integer(DType dtype) { return dtype >= DType::u8 && dtype <= DType::u64; }

const Format& format_of(DType dtype) {
  OPDIFF_CHECK(is_float(dtype));
  static constexpr Format kFormats[] = {kF64, kF32, kF16, kBF16};
  return kFormats[static_cast<int>(dtype)];
}

std::uint16_t to_bf16_bits(double x) {
  if (std::isnan(x)) return 0x7FC0;
  const float rounded = static_cast<float>(round_to(x, kBF16));  // exact: bf16 is a subset of f32
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16);
}

double from_bf16_bits(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t to_f16_bits(double x) {
  if (std::isnan(x)) return 0x7E00;
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(round_to(x, kF16));
  if (std::isinf(magnitude)) return sign | 0x7C00;
  if (magnitude < kF16.lambda()) return sign | static_cast<std::uint16_t>(magnitude / kF16.eta());
  const int exponent = std::ilogb(magnitude);
  const auto significand = static_cast<std::uint16_t>(std::ldexp(magnitude, 10 - exponent));  // in [1024, 2048)
  return sign | static_cast<std::uint16_t>(((exponent + 15) << 10) + (significand - 1024));
}

double from_f16_bits(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int fraction = bits & 0x3FF;
  double magnitude;
  if (exponent == 31)
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, -24);
  else
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  return std::copysign(magnitude, (bits & 0x8000) ? -1.0 : 1.0);
}

}  // namespace opdiff
