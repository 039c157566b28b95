// Constant, Shape and Cast; Cast over all values of the 16-bit floats, against conversions written here.
#include "judge/judge.h"
#include "ops/one_node.h"

namespace opdiff {
namespace {

Tensor cast(const Tensor& x, DType to, int opset = 17) {
  return run("Cast", opset, {{"to", std::int64_t{onnx_code(to)}}}, {x});
}

// All 65,536 values of a 16-bit float.
Tensor every_value(DType dtype) {
  Tensor x = Tensor::zeros(dtype, {65536});
  auto bits = x.mutable_as<std::uint16_t>();
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  return x;
}

// The value of a 16-bit pattern with `fraction` fraction bits, from its fields.
double decode(std::uint16_t bits, int fraction) {
  const int exponent_bits = 15 - fraction, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7FFF) >> fraction, significand = bits & ((1 << fraction) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return significand ? kNan : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(significand, 1 - bias - fraction);
  return sign * std::ldexp((1 << fraction) + significand, exponent - bias - fraction);
}

int fraction_bits(DType dtype) { return dtype == DType::f16 ? 10 : 7; }

// The nearest value of a 16-bit format, ties to the even pattern, by bisection over the patterns of one sign.
std::uint16_t nearest(double x, int fraction) {
  const std::uint16_t infinity = static_cast<std::uint16_t>(((1 << (15 - fraction)) - 1) << fraction);
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double m = std::fabs(x);
  if (std::isinf(m)) return sign | infinity;
  std::uint16_t low = 0, high = infinity;
  while (high - low > 1) {
    const std::uint16_t middle = static_cast<std::uint16_t>((low + high) / 2);
    (decode(middle, fraction) <= m ? low : high) = middle;
  }
  // Above the largest number the next step would be as long as the last.
  const double below = decode(low, fraction);
  const double above =
      high == infinity ? 2 * below - decode(static_cast<std::uint16_t>(low - 1), fraction) : decode(high, fraction);
  const double to_low = m - below, to_high = above - m;
  const bool up = to_high < to_low || (to_high == to_low && (low & 1));
  return sign | (up ? high : low);
}

TEST(Cast, EverySixteenBitFloatToEveryType) {
  for (const DType from : {DType::f16, DType::bf16}) {
    const Tensor x = every_value(from);
    for (int k = 0; k < kDTypeCount; ++k) {
      const auto to = static_cast<DType>(k);
      const Tensor y = cast(x, to);
      ASSERT_EQ(y.dtype(), to);
      const OneNode node("Cast", 17, {{"to", std::int64_t{onnx_code(to)}}}, {x});
      const std::vector<bool> open = node.op().unspecified(node.call(), 0);
      std::int64_t out_of_range = 0;
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const double v = decode(static_cast<std::uint16_t>(i), fraction_bits(from));
        if (to == DType::boolean) {
          ASSERT_EQ(y.int_at(i), v != 0);
        } else if (is_float(to)) {
          if (std::isnan(v)) {
            ASSERT_TRUE(std::isnan(y.at(i)));
          } else if (to == DType::f16 || to == DType::bf16) {
            ASSERT_EQ(y.as<std::uint16_t>()[static_cast<std::size_t>(i)], nearest(v, fraction_bits(to))) << v;
          } else {
            ASSERT_EQ(y.at(i), v);  // f32 and f64 hold them all
            ASSERT_EQ(std::signbit(y.at(i)), std::signbit(v));
          }
        } else {
          const int bits = static_cast<int>(8 * dtype_size(to));
          const bool is_unsigned = is_unsigned_integer(to);
          const double least = is_unsigned ? 0 : -std::ldexp(1, bits - 1);
          const double beyond = std::ldexp(1, is_unsigned ? bits : bits - 1);
          const bool fits = std::trunc(v) >= least && std::trunc(v) < beyond;
          ASSERT_EQ(open[static_cast<std::size_t>(i)], !fits) << v;
          out_of_range += !fits;
          if (fits) {
            ASSERT_EQ(y.at(i), std::trunc(v)) << v;
          }
        }
      }
      EXPECT_EQ(out_of_range > 0, is_integer(to));
    }
  }
}

TEST(Cast, WideFloatsRoundOnce) {
  // A tie of f16 (1 + 2^-11) and just above it, closer than f32 can tell: through f32 it would round down.
  const Tensor x = tensor(DType::f64, {3}, {1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-40, -1 - 0x1p-11 - 0x1p-40});
  EXPECT_TRUE(same(cast(x, DType::f16), tensor(DType::f16, {3}, {1, 1 + 0x1p-10, -1 - 0x1p-10})));
  const OneNode node("Cast", 17, {{"to", std::int64_t{onnx_code(DType::f16)}}}, {x});
  const Tensor twice = tensor(DType::f16, {3}, {1, 1, -1}), wrong = tensor(DType::f16, {3}, {1, 1, -2});
  const Tensor* got[] = {&twice};
  const Verdict v = judge_node(node.node, 17, node.pointers, got)[0];
  EXPECT_EQ(v.rung, Rung::convention);
  EXPECT_EQ(v.explanation, "rounded twice, through float32");
  got[0] = &wrong;
  EXPECT_EQ(judge_node(node.node, 17, node.pointers, got)[0].rung, Rung::defect);
  EXPECT_TRUE(same(cast(tensor(DType::f64, {4}, {1e300, -1e300, 1e-300, kNan}), DType::f32),
                   floats({4}, {HUGE_VAL, -HUGE_VAL, 0, kNan})));
  EXPECT_TRUE(same(cast(floats({2}, {65519, 65520}), DType::f16), tensor(DType::f16, {2}, {65504, HUGE_VAL})));
}

TEST(Cast, WideIntegersRoundOnce) {
  // 2^62 + 2^54 is a tie of bf16; one more is lost by f64, which would round the tie to even.
  const std::int64_t tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);
  EXPECT_EQ(cast(int64s({tie}), DType::bf16).at(0), 0x1p62);
  EXPECT_EQ(cast(int64s({tie + 1}), DType::bf16).at(0), 0x1p62 + 0x1p55);
  EXPECT_EQ(cast(int64s({-tie - 1}), DType::bf16).at(0), -0x1p62 - 0x1p55);
  const std::int64_t narrow = (std::int64_t{1} << 62) + (std::int64_t{1} << 38);  // the same for f32
  EXPECT_EQ(cast(int64s({narrow}), DType::f32).at(0), 0x1p62);
  EXPECT_EQ(cast(int64s({narrow + 1}), DType::f32).at(0), 0x1p62 + 0x1p39);
  EXPECT_EQ(cast(integers(DType::u64, {-1}), DType::f32).at(0), 0x1p64);
  EXPECT_EQ(cast(integers(DType::u64, {-1}), DType::f64).at(0), 0x1p64);
  EXPECT_EQ(cast(int64s({std::numeric_limits<std::int64_t>::min()}), DType::f64).at(0), -0x1p63);
  EXPECT_EQ(cast(integers(DType::i32, {70000}), DType::f16).at(0), HUGE_VAL);
}

TEST(Cast, IntegersWrapAndBoolIsZeroOrOne) {
  EXPECT_TRUE(same(cast(integers(DType::i16, {200, -1}), DType::i8), integers(DType::i8, {-56, -1})));
  EXPECT_TRUE(same(cast(integers(DType::i8, {-1}), DType::u64), integers(DType::u64, {-1})));
  EXPECT_TRUE(
      same(cast(int64s({0, 36, std::int64_t{1} << 40}), DType::boolean), tensor(DType::boolean, {3}, {0, 1, 1})));
  EXPECT_TRUE(
      same(cast(floats({4}, {-0.0, 0.3, kNan, -1}), DType::boolean), tensor(DType::boolean, {4}, {0, 1, 1, 1})));
  EXPECT_TRUE(same(cast(tensor(DType::boolean, {2}, {1, 0}), DType::bf16), tensor(DType::bf16, {2}, {1, 0})));
  EXPECT_TRUE(same(cast(floats({3}, {-0.9, 2.9, -2.9}), DType::i32), integers(DType::i32, {0, 2, -2})));
  EXPECT_TRUE(
      same(cast(floats({1}, {0x1p63}), DType::u64), integers(DType::u64, {std::numeric_limits<std::int64_t>::min()})));
}

TEST(Cast, TypeIsKnownBeforeTheShape) {
  const OneNode node("Cast", 17, {{"to", std::int64_t{onnx_code(DType::i8)}}}, {floats({1}, {1})});
  const Call call(node.node, 17, {TensorType{DType::f32, std::nullopt}}, {nullptr});
  const auto types = infer_call(node.op(), call);
  ASSERT_TRUE(types.has_value());
  EXPECT_EQ(types->front().dtype, DType::i8);
  EXPECT_FALSE(types->front().shape.has_value());
}

TEST(Cast, SaturateHasNoEffectOnOurTypes) {
  const Attributes attributes{{"to", std::int64_t{onnx_code(DType::f16)}}, {"saturate", std::int64_t{0}}};
  EXPECT_EQ(run("Cast", 19, attributes, {floats({1}, {1e6})}).at(0), HUGE_VAL);
  EXPECT_NE(refusal("Cast", 18, attributes, {floats({1}, {1})}).find("saturate"), std::string::npos);
}

TEST(Shape, PartsByOpset) {
  const Tensor x = counting({2, 3, 4});
  const auto part = [&](std::optional<std::int64_t> start, std::optional<std::int64_t> end) {
    Attributes attributes;
    if (start) attributes["start"] = *start;
    if (end) attributes["end"] = *end;
    return run("Shape", 15, attributes, {x});
  };
  EXPECT_TRUE(same(run("Shape", 7, {}, {x}), int64s({2, 3, 4})));
  EXPECT_TRUE(same(run("Shape", 7, {}, {floats({}, {1})}), int64s({})));
  EXPECT_TRUE(same(part(1, {}), int64s({3, 4})));
  EXPECT_TRUE(same(part(-1, {}), int64s({4})));
  EXPECT_TRUE(same(part({}, -1), int64s({2, 3})));
  EXPECT_TRUE(same(part(-100, 100), int64s({2, 3, 4})));
  EXPECT_TRUE(same(part(2, 1), int64s({})));
}

TEST(Constant, EveryAttribute) {
  const Tensor x = floats({2}, {1, 2});
  EXPECT_TRUE(same(run("Constant", 7, {{"value", x}}, {}), x));
  EXPECT_TRUE(same(run("Constant", 12, {{"value_float", 1.5f}}, {}), floats({}, {1.5})));
  EXPECT_TRUE(same(run("Constant", 12, {{"value_floats", std::vector<float>{1, 2}}}, {}), x));
  EXPECT_TRUE(same(run("Constant", 13, {{"value_int", std::int64_t{-3}}}, {}), tensor(DType::i64, {}, {-3})));
  EXPECT_TRUE(same(run("Constant", 13, {{"value_ints", Shape{4, 5}}}, {}), int64s({4, 5})));
  EXPECT_TRUE(same(run("Constant", 13, {{"value_ints", Shape{}}}, {}), int64s({})));
}

}  // namespace
}  // namespace opdiff
