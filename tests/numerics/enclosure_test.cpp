// What an overflow on the way may make of a result, operation by operation.
#include "numerics/enclosure.h"

#include <gtest/gtest.h>

#include "numerics/product.h"
#include "numerics/sum.h"

namespace opdiff {
namespace {

using E = Enclosure<double>;

// A number that some implementations see as an infinity.
E maybe(double v, std::uint8_t overflow) {
  E x(v);
  x.overflow = overflow;
  return x;
}

TEST(Overflow, KeepsItsSign) {
  const E plus = maybe(5, kPlusInfinity), minus = maybe(5, kMinusInfinity);
  EXPECT_EQ((plus + E(1.0)).overflow, kPlusInfinity);
  EXPECT_EQ((E(1.0) - plus).overflow, kMinusInfinity);
  EXPECT_EQ((plus - plus).overflow, kPlusInfinity | kMinusInfinity | kNaN);
  EXPECT_EQ((plus * E(2.0)).overflow, kPlusInfinity);
  EXPECT_EQ((plus * E(-2.0)).overflow, kMinusInfinity);
  EXPECT_TRUE((plus * E(0.0)).overflow & kNaN);
  EXPECT_EQ((plus / E(2.0)).overflow, kPlusInfinity);
  EXPECT_EQ((plus / E(-2.0)).overflow, kMinusInfinity);
  EXPECT_EQ((minus / E(-2.0)).overflow, kPlusInfinity);
  EXPECT_EQ((-plus).overflow, kMinusInfinity);
}

TEST(Overflow, OfADivisorMakesTheQuotientVanish) {
  const E y = E(3.0) / maybe(2, kPlusInfinity);
  EXPECT_EQ(y.overflow, kNoOverflow);
  EXPECT_GE(y.e, 1.5);
  EXPECT_GE(y.variance(), 1.5 * 1.5);
}

TEST(Overflow, ThatIsNaNStaysNaN) {
  EXPECT_EQ((E(3.0) / maybe(2, kNaN)).overflow, kNaN);
  EXPECT_EQ((E(3.0) / maybe(2, kPlusInfinity | kNaN)).overflow, kNaN);
  EXPECT_TRUE((E(3.0) * maybe(2, kNaN)).overflow & kNaN);
  EXPECT_TRUE((E(3.0) - maybe(2, kNaN)).overflow & kNaN);
}

TEST(Overflow, OfAnArgument) {
  EXPECT_EQ(exp(maybe(5, kPlusInfinity)).overflow, kPlusInfinity);
  EXPECT_EQ(exp(maybe(5, kMinusInfinity)).overflow, kNoOverflow);
  EXPECT_GE(exp(maybe(5, kMinusInfinity)).e, std::exp(5));
  EXPECT_EQ(expm1(maybe(0.5, kMinusInfinity)).overflow, kNoOverflow);
  EXPECT_GE(expm1(maybe(0.5, kMinusInfinity)).e, std::expm1(0.5) + 1);
  EXPECT_EQ(log(maybe(2, kPlusInfinity)).overflow, kPlusInfinity);
  EXPECT_EQ(log(maybe(2, kMinusInfinity)).overflow, kNaN);
  EXPECT_EQ(sqrt(maybe(2, kPlusInfinity)).overflow, kPlusInfinity);
  EXPECT_EQ(sqrt(maybe(2, kMinusInfinity)).overflow, kNaN);
  EXPECT_EQ(tanh(maybe(0.5, kPlusInfinity)).overflow, kNoOverflow);
  EXPECT_GE(tanh(maybe(0.5, kPlusInfinity)).e, 1 - std::tanh(0.5));
  EXPECT_GE(erf(maybe(0.5, kMinusInfinity)).e, 1 + std::erf(0.5));
  EXPECT_EQ(tanh(maybe(0.5, kNaN)).overflow, kNaN);
}

TEST(Overflow, BesideAnInfinity) {
  const E infinite(kInfinity), plus = maybe(1, kPlusInfinity), minus = maybe(1, kMinusInfinity);
  EXPECT_EQ((infinite + plus).overflow, kPlusInfinity);
  EXPECT_EQ((infinite + minus).overflow, kMinusInfinity | kNaN);
  EXPECT_EQ((infinite + E(1.0)).overflow, kNoOverflow);
  E vanishing(1e-45);
  vanishing.e = 1e-44;
  EXPECT_EQ((infinite * vanishing).overflow, kPlusInfinity | kMinusInfinity | kNaN);
  EXPECT_EQ((infinite * E(1e-45)).overflow, kNoOverflow);
  EXPECT_EQ((infinite / plus).overflow & kNaN, kNaN);
  EXPECT_EQ((plus / infinite).overflow, kNaN);
  EXPECT_EQ((E(1.0) / infinite).overflow, kNoOverflow);
  for (const double other : {3e38, 1e38}) {  // twice the first overflows, twice the second does not
    Sum<E> sum;
    for (const double term : {other, other, -kInfinity}) sum.add(E(term));
    EXPECT_EQ(sum.result().overflow, other > 2e38 ? kNaN : kNoOverflow);
    E product;
    const double a[] = {1, 1, 1}, b[] = {other, other, -kInfinity};
    products({1, 1, 3}, a, b, static_cast<const double*>(nullptr), &product);
    EXPECT_EQ(product.overflow, other > 2e38 ? kNaN : kNoOverflow);
  }
}

TEST(Overflow, OfAMaximum) {
  EXPECT_EQ(maximum(maybe(1, kPlusInfinity), E(2.0)).overflow, kPlusInfinity);
  EXPECT_EQ(maximum(maybe(3, kMinusInfinity), E(2.0)).overflow, kNoOverflow);
  EXPECT_EQ(maximum(maybe(3, kMinusInfinity), maybe(2, kMinusInfinity)).overflow, kMinusInfinity);
  EXPECT_EQ(minimum(maybe(3, kMinusInfinity), E(2.0)).overflow, kMinusInfinity);
  EXPECT_EQ(minimum(maybe(1, kPlusInfinity), E(2.0)).overflow, kNoOverflow);
}

TEST(Overflow, OnBothSidesOfZero) {
  E wide(1.0);
  wide.e = 1e39;
  wide.s = 1e70;
  EXPECT_EQ((wide + E(1.0)).overflow, kPlusInfinity | kMinusInfinity);
  EXPECT_EQ((wide * E(2.0)).overflow, kPlusInfinity | kMinusInfinity);
}

TEST(Domain, IsLeftByARadius) {
  E small(1e-6);
  small.e = 1e-5;
  small.s = 1e-12;
  EXPECT_TRUE(sqrt(small).overflow & kNaN);
  EXPECT_TRUE(log(small).overflow & kNaN);
  EXPECT_EQ(log(small).e, kInfinity);
  E zero(0.0);
  zero.e = 1e-6;
  zero.s = 1e-14;
  EXPECT_GT(sqrt(zero).variance(), 0);
  EXPECT_TRUE((zero / E(0.0)).overflow & kPlusInfinity);
  EXPECT_TRUE((E(1.0) / zero).overflow & kMinusInfinity);
  EXPECT_EQ((E(1.0) / zero).e, kInfinity);
}

TEST(Maximum, PassesNaNOn) {
  EXPECT_TRUE(std::isnan(maximum(E(std::nan("")), E(1.0)).v));
  EXPECT_TRUE(std::isnan(maximum(E(1.0), E(std::nan(""))).v));
  EXPECT_TRUE(std::isnan(minimum(E(1.0), E(std::nan(""))).v));
}

// Both lose the small term: double, which the oracle computes in, and float, whose error that is.
TEST(Exactness, ATermThatDoubleLosesIsARounding) {
  const E lost = E(1.0) + E(0x1p-100);
  EXPECT_FALSE(lost.exact());
  EXPECT_GE(lost.e, 0x1p-100);
  EXPECT_GE((lost - E(1.0)).e, 0x1p-100) << "the value is 0, the truth 2^-100";
  const Enclosure<Quad> quad = Enclosure<Quad>(1.0) + Enclosure<Quad>(0x1p-1000);
  EXPECT_FALSE(quad.exact());
  EXPECT_TRUE((E(0x1p100) + E(0x1p100)).exact());
}

TEST(Exactness, OfSteps) {
  EXPECT_TRUE((E(1.0) + E(0x1p-23)).exact());
  EXPECT_FALSE((E(1.0) + E(0x1p-24)).exact());
  EXPECT_TRUE((E(3.0) * E(0.125)).exact());
  EXPECT_FALSE((E(0x1.000002p0) * E(0x1.000002p0)).exact());
  EXPECT_FALSE((E(0x1p127) * E(2.0)).exact()) << "overflow";
  EXPECT_FALSE((E(0x1p-149) * E(0.5)).exact()) << "underflow";
  Profile flush = inner_f32(DType::f32);
  flush.flush_to_zero = true;
  const ProfileScope scope(flush);
  EXPECT_FALSE((E(0x1p-126) - E(0x1.8p-126)).exact());
  EXPECT_FALSE(E(0x1p-130).exact());
  EXPECT_TRUE((E(1.0) - E(1.0)).exact());
}

}  // namespace
}  // namespace opdiff
