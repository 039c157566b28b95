// Rounding to f16, bf16 and tf32 over every value of the format: each value, each point between two
// neighbours and the doubles next to it, in the three modes, against integer reasoning and the compiler's own
// conversions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/format.h"
#include "base/rng.h"

namespace opdiff {
namespace {

// Values of a format in ascending order are numbered by their bits, as for every IEEE format: value(i) for
// i = 0 .. count - 1 are the finite non-negative ones, and value(count) is what would come after the largest.
struct Enumerated {
  const Format& format;
  int fraction_bits;
  int count() const { return (format.max_exponent - format.min_exponent + 2) << fraction_bits; }
  double value(int index) const {
    const int exponent = index >> fraction_bits;
    const int fraction = index & ((1 << fraction_bits) - 1);
    const int lowest = format.min_exponent - fraction_bits;
    return exponent == 0 ? std::ldexp(fraction, lowest)
                         : std::ldexp((1 << fraction_bits) + fraction, lowest + exponent - 1);
  }
};

const Enumerated kEnumerated[] = {{kF16, 10}, {kBF16, 7}, {kTF32, 10}};

TEST(Rounding, EveryValueAndEveryHalfwayCase) {
  for (const Enumerated& e : kEnumerated) {
    SCOPED_TRACE(e.format.name);
    const int count = e.count();
    EXPECT_EQ(e.value(1), e.format.eta());
    EXPECT_EQ(e.value(1 << e.fraction_bits), e.format.lambda());
    EXPECT_EQ(e.value(count - 1), e.format.max_finite());
    // Expected after overflow: infinity to nearest, the largest number toward zero.
    const auto nearest = [&](int index) { return index == count ? HUGE_VAL : e.value(index); };
    const auto check = [&](double x, Rounding rounding, double expected) {
      for (const double sign : {1.0, -1.0}) {
        const double got = round_to(sign * x, e.format, rounding);
        if (got != sign * expected || std::signbit(got) != std::signbit(sign * expected))
          ADD_FAILURE() << sign * x << " mode " << static_cast<int>(rounding) << " gave " << got << ", not "
                        << sign * expected;
      }
    };
    for (int i = 0; i < count; ++i) {
      const double low = e.value(i), high = e.value(i + 1), middle = (low + high) / 2;
      for (const Rounding rounding : {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero})
        check(low, rounding, low);
      check(middle, Rounding::nearest_even, nearest(i % 2 == 0 ? i : i + 1));
      check(middle, Rounding::nearest_away, nearest(i + 1));
      check(middle, Rounding::toward_zero, low);
      const double below = std::nextafter(middle, 0.0), above = std::nextafter(middle, HUGE_VAL);
      for (const Rounding rounding : {Rounding::nearest_even, Rounding::nearest_away}) {
        check(below, rounding, low);
        check(above, rounding, nearest(i + 1));
      }
      check(below, Rounding::toward_zero, low);
      check(above, Rounding::toward_zero, low);
      check(std::nextafter(high, 0.0), Rounding::toward_zero, low);
    }
  }
}

TEST(Rounding, OverflowUnderflowAndNonFinite) {
  for (const Format& format : {kF16, kBF16, kTF32, kF32}) {
    SCOPED_TRACE(format.name);
    for (const double x : {2 * format.max_finite(), 1e300, std::numeric_limits<double>::max()}) {
      EXPECT_EQ(round_to(x, format), HUGE_VAL);
      EXPECT_EQ(round_to(-x, format, Rounding::nearest_away), -HUGE_VAL);
      EXPECT_EQ(round_to(x, format, Rounding::toward_zero), format.max_finite());
      EXPECT_EQ(round_to(-x, format, Rounding::toward_zero), -format.max_finite());
    }
    const double tiny = std::numeric_limits<double>::denorm_min();
    EXPECT_EQ(round_to(tiny, format), 0);
    EXPECT_TRUE(std::signbit(round_to(-tiny, format)));
    EXPECT_TRUE(std::signbit(round_to(-0.0, format)));
    EXPECT_EQ(round_to(format.eta() / 2, format), 0);
    EXPECT_EQ(round_to(format.eta() / 2, format, Rounding::nearest_away), format.eta());
    EXPECT_EQ(round_to(std::nextafter(format.eta() / 2, 1), format), format.eta());
    EXPECT_EQ(round_to(HUGE_VAL, format, Rounding::toward_zero), HUGE_VAL);
    EXPECT_TRUE(std::isnan(round_to(NAN, format)));
  }
}

TEST(Rounding, F16BitsAgreeWithTheCompilers) {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = static_cast<double>(std::bit_cast<_Float16>(bits));
    const double got = from_f16_bits(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << i;
      EXPECT_EQ(to_f16_bits(got), 0x7E00) << i;
      continue;
    }
    EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(expected)) << i;
    EXPECT_EQ(to_f16_bits(got), bits) << i;
  }
}

TEST(Rounding, BF16BitsAreTheUpperHalfOfF32) {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16);
    const double got = from_bf16_bits(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << i;
      EXPECT_EQ(to_bf16_bits(got), 0x7FC0) << i;
      continue;
    }
    EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(expected)) << i;
    EXPECT_EQ(to_bf16_bits(got), bits) << i;
  }
}

// To nearest even on the bits of an f32: add half of what is dropped, less one, plus the lowest kept bit.
float drop_bits(float x, int dropped) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  bits += (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
  return std::bit_cast<float>(bits & ~((1u << dropped) - 1));
}

TEST(Rounding, RandomValuesAgainstIndependentConversions) {
  Rng rng(1);
  for (int i = 0; i < 300000; ++i) {
    const float single = std::bit_cast<float>(static_cast<std::uint32_t>(rng.next()));
    if (std::isfinite(single)) {
      ASSERT_EQ(round_to(single, kBF16), drop_bits(single, 16)) << single;
      ASSERT_EQ(round_to(single, kTF32), drop_bits(single, 13)) << single;
    }
    const double x = std::ldexp(rng.uniform(-2, 2), static_cast<int>(rng.integer(-30, 18)));
    ASSERT_EQ(to_f16_bits(x), std::bit_cast<std::uint16_t>(static_cast<_Float16>(x))) << x;
    const double y = std::ldexp(rng.uniform(-2, 2), static_cast<int>(rng.integer(-155, 130)));
    ASSERT_EQ(round_to(y, kF32), static_cast<float>(y)) << y;
  }
}

TEST(Rounding, UlpAndParameters) {
  EXPECT_EQ(ulp(1.0, kF16), 0x1p-10);
  EXPECT_EQ(ulp(-1.999, kF16), 0x1p-10);
  EXPECT_EQ(ulp(2.0, kF16), 0x1p-9);
  EXPECT_EQ(ulp(0.0, kF16), kF16.eta());
  EXPECT_EQ(ulp(1e-30, kF16), kF16.eta());
  EXPECT_EQ(kF16.max_finite(), 65504);
  EXPECT_EQ(kF32.max_finite(), std::numeric_limits<float>::max());
  EXPECT_EQ(kF32.eta(), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(kF32.unit_roundoff(), std::numeric_limits<float>::epsilon() / 2);
  EXPECT_EQ(kF64.max_finite(), std::numeric_limits<double>::max());
  EXPECT_EQ(kF64.eta(), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(kBF16.max_finite(), std::bit_cast<float>(0x7F7F0000u));
}

}  // namespace
}  // namespace opdiff
