// Enclosures against MPFR: for operands anywhere inside their radii and any rounding that the profile admits, the
// result lies inside the radius (plus the oracle's own error), or the overflow flags say what else it may be.
#include <gtest/gtest.h>

#include "mp.h"
#include "numerics/enclosure.h"
#include "numerics/nasty.h"
#include "numerics/power.h"
#include "numerics/working.h"

namespace opdiff {
namespace {

using mp::Number;

struct Operation {
  std::string name;
  int operands;
  bool function;  // of a budget in ulps, not correctly rounded
  bool underflows;
  std::function<Enclosure<double>(const Enclosure<double>&, const Enclosure<double>&)> enclose;
  std::function<Enclosure<Quad>(const Enclosure<Quad>&, const Enclosure<Quad>&)> enclose_quad;
  std::function<Number(const Number&, const Number&)> exact;
  bool rounds = true;
  double low = -HUGE_VAL;  // domain
};

template <class F, class G>
Operation operation(std::string name, int operands, bool function, bool underflows, F f, G exact) {
  return {std::move(name),
          operands,
          function,
          underflows,
          [f](const auto& a, const auto& b) { return f(a, b); },
          [f](const auto& a, const auto& b) { return f(a, b); },
          exact};
}

std::vector<Operation> operations() {
  std::vector<Operation> ops{
      operation(
          "+", 2, false, false, [](auto a, auto b) { return a + b; }, [](auto& a, auto& b) { return Number(a + b); }),
      operation(
          "-", 2, false, false, [](auto a, auto b) { return a - b; }, [](auto& a, auto& b) { return Number(a - b); }),
      operation(
          "*", 2, false, true, [](auto a, auto b) { return a * b; }, [](auto& a, auto& b) { return Number(a * b); }),
      operation(
          "/", 2, false, true, [](auto a, auto b) { return a / b; }, [](auto& a, auto& b) { return Number(a / b); }),
      operation(
          "sqrt", 1, false, false, [](auto a, auto) { return sqrt(a); },
          [](auto& a, auto&) { return Number(sqrt(a)); }),
      operation(
          "exp", 1, true, true, [](auto a, auto) { return exp(a); }, [](auto& a, auto&) { return Number(exp(a)); }),
      operation(
          "expm1", 1, true, true, [](auto a, auto) { return expm1(a); }, [](auto& a, auto&) { return mp::expm1(a); }),
      operation(
          "log", 1, true, true, [](auto a, auto) { return log(a); }, [](auto& a, auto&) { return Number(log(a)); }),
      operation(
          "tanh", 1, true, true, [](auto a, auto) { return tanh(a); }, [](auto& a, auto&) { return Number(tanh(a)); }),
      operation(
          "erf", 1, true, true, [](auto a, auto) { return erf(a); }, [](auto& a, auto&) { return mp::erf(a); }),
      operation(
          "pow", 2, true, true, [](auto a, auto b) { return power(a, b); },
          [](auto& a, auto& b) { return Number(pow(a, b)); }),
      operation(
          "maximum", 2, false, false, [](auto a, auto b) { return maximum(a, b); },
          [](auto& a, auto& b) { return a < b ? b : a; }),
      operation(
          "minimum", 2, false, false, [](auto a, auto b) { return minimum(a, b); },
          [](auto& a, auto& b) { return a < b ? a : b; }),
  };
  for (Operation& o : ops) {
    if (o.name == "maximum" || o.name == "minimum") o.rounds = false;
    if (o.name == "sqrt" || o.name == "log" || o.name == "pow") o.low = 0;
  }
  return ops;
}

template <class V>
Enclosure<V> run(const Operation& o, const Enclosure<V>& a, const Enclosure<V>& b) {
  if constexpr (std::is_same_v<V, double>)
    return o.enclose(a, b);
  else
    return o.enclose_quad(a, b);
}

// 2 u 2^floor(log2 |x|), at least eta.
Number ulp_of(const Number& x, const Format& format) {
  if (x == 0) return Number(format.eta());
  const int exponent = std::max(static_cast<int>(mpfr_get_exp(x.backend().data())) - 1, format.min_exponent);
  return ldexp(Number(1), exponent - format.digits + 1);
}

struct Tally {
  int checked = 0, unbounded = 0, outside = 0, overflowing = 0;
};

template <class V>
Tally attack(const Operation& o, const Profile& profile, std::uint64_t seed, int cases) {
  const ProfileScope scope(profile);
  const Format& format = profile.inner;
  Tally tally;
  Rng rng(seed, o.name);
  const double own_u = kUnitRoundoff<V>;
  for (int i = 0; i < cases; ++i) {
    Enclosure<V> operand[2];
    Number truth[2];
    for (int k = 0; k < 2; ++k) {
      double v = nasty(rng, format);
      if (o.low == 0) v = std::fabs(v);
      if (o.function && rng.chance(0.5)) v = round_to(rng.normal() * (rng.chance(0.5) ? 3 : 40), format);
      if (o.low == 0) v = std::fabs(v);
      if (k == 1 && rng.chance(0.3))
        v = round_to(operand[0].value() * (rng.chance(0.5) ? -1 : 1) * (1 + rng.normal() * 1e-3), format);
      if (!std::isfinite(v)) v = 1;
      operand[k] = Enclosure<V>(v);
      if (rng.chance(0.7)) {
        operand[k].e = rng.chance(0.1) ? std::fabs(rng.normal()) : std::fabs(v) * std::pow(10.0, rng.uniform(-9, 0.3));
        operand[k].s =
            operand[k].e < 1e-290 ? 0 : static_cast<typename Enclosure<V>::Square>(operand[k].e) * operand[k].e / 9;
        if (operand[k].e < 1e-290)
          operand[k].e = 0;  // radii are doubles: f64 operands that small have none that is exact
        if (!(operand[k].magnitude() + operand[k].e <= format.max_finite()))
          operand[k].e = operand[k].magnitude() * 1e-7;
      }
      const double where = rng.chance(0.4) ? (rng.chance(0.5) ? 1 : -1) : rng.uniform(-1, 1);
      truth[k] = Number(v) + Number(operand[k].e) * where;
    }
    const Enclosure<V> y = run(o, operand[0], operand[1]);
    if (o.low == 0 && truth[0] < 0) {  // an honest implementation gets NaN
      ++tally.outside;
      EXPECT_TRUE(y.overflow & kNaN) << o.name << " " << profile.name << " case " << i;
      continue;
    }
    const Number z = o.exact(truth[0], truth[1]);
    if (!isfinite(z)) {
      const bool zero_divided = o.name == "/" && truth[1] == 0;
      const bool raised = o.name == "pow";  // of zero, or beyond MPFR's exponents, too
      EXPECT_TRUE(zero_divided || raised || (o.name == "log" && truth[0] == 0) || (o.function && truth[0] > 1e5))
          << o.name << " case " << i;
      const double v = y.value();
      EXPECT_TRUE(std::isnan(v) || std::isinf(v) || y.overflow) << o.name << " case " << i;
      continue;
    }
    // What the format gives, at worst.
    const Number step = !o.rounds                  ? Number(0)
                        : o.function               ? Number(4) * ulp_of(z, format)
                        : abs(z) < format.lambda() ? (o.underflows ? Number(format.eta()) / 2 : Number(0))
                                                   : abs(z) * format.unit_roundoff();
    for (const int side : {-1, 0, 1}) {
      const Number got = z + side * step;
      if (operand[0].exact() && operand[1].exact() && y.e == 0 && std::isfinite(y.value()) && !y.overflow) {
        // No rounding happens: the number nearest to z is v.
        EXPECT_LE(abs(z - mp::of(y.v)), Number(own_u * y.magnitude())) << o.name << " case " << i;
        EXPECT_TRUE(representable(y.value(), format));
        ++tally.checked;
        continue;
      }
      if (abs(got) > Number(format.max_finite()) * (1 + format.unit_roundoff())) {
        ++tally.overflowing;
        const bool finite_value = std::isfinite(y.value());
        EXPECT_TRUE(!finite_value || (y.overflow & (got > 0 ? kPlusInfinity : kMinusInfinity)))
            << o.name << " " << profile.name << " case " << i << ": " << got.str(20) << " v " << y.value() << " e "
            << y.e;
        continue;
      }
      if (!(y.e < kInfinity)) {
        ++tally.unbounded;
        continue;
      }
      ++tally.checked;
      const double own = std::max(y.e * own_u / format.unit_roundoff(), own_u * y.magnitude());
      EXPECT_LE(abs(got - mp::of(y.v)), Number(y.e) + Number(own))
          << o.name << " " << profile.name << " case " << i << " a " << operand[0].value() << "+-" << operand[0].e
          << " b " << operand[1].value() << "+-" << operand[1].e << " at " << truth[0].str(20) << ", "
          << truth[1].str(20) << " v " << y.value() << " side " << side;
    }
    if (testing::Test::HasFailure()) return tally;
  }
  return tally;
}

class EnclosureLaw : public testing::TestWithParam<Operation> {};

TEST_P(EnclosureLaw, HoldsEveryResultInF32) {
  const Tally t = attack<double>(GetParam(), inner_f32(DType::f32), 1, 5000);
  EXPECT_GT(t.checked, 5000);
  EXPECT_LT(t.unbounded, t.checked / 2);
}
TEST_P(EnclosureLaw, HoldsEveryResultInF16) {
  EXPECT_GT(attack<double>(GetParam(), inner_storage(DType::f16), 2, 5000).checked, 3000);
}
TEST_P(EnclosureLaw, HoldsEveryResultInBf16) {
  EXPECT_GT(attack<double>(GetParam(), inner_storage(DType::bf16), 3, 5000).checked, 3000);
}
TEST_P(EnclosureLaw, HoldsEveryResultInF64) {
  EXPECT_GT(attack<Quad>(GetParam(), inner_f32(DType::f64), 4, 2000).checked, 2000);
}

INSTANTIATE_TEST_SUITE_P(Operations, EnclosureLaw, testing::ValuesIn(operations()), [](const auto& info) {
  const std::string& n = info.param.name;
  return n == "+" ? "plus" : n == "-" ? "minus" : n == "*" ? "times" : n == "/" ? "divided" : n;
});

// Elementary functions of binary128 are what rho of f64 results rests on: within 2 units of 2^-112 of the result.
TEST(QuadFunctions, AreAccurate) {
  Rng rng(5);
  double worst = 0;
  for (int i = 0; i < 4000; ++i) {
    const double x = rng.normal() * std::pow(10.0, rng.uniform(-12, 2.5));
    const auto check = [&](Quad y, const Number& exact) {
      if (exact == 0 || !isfinite(exact) || y == 0 || abs(exact) < Number("1e-4900")) return;
      const Number off = abs(mp::of(y) - exact) / abs(exact);
      if (abs(exact) > 1e-290 && abs(exact) < 1e290) worst = std::max(worst, static_cast<double>(ldexp(off, 112)));
    };
    check(math::exp(Quad(x)), exp(Number(x)));
    check(math::expm1(Quad(x)), mp::expm1(Number(x)));
    check(math::log(Quad(std::fabs(x))), log(abs(Number(x))));
    check(math::tanh(Quad(x)), tanh(Number(x)));
    check(math::erf(Quad(x)), mp::erf(Number(x)));
    check(math::sqrt(Quad(std::fabs(x))), sqrt(abs(Number(x))));
  }
  EXPECT_LT(worst, 4) << "budget: 4 ulp";
}

TEST(DoubleFunctions, AreAccurate) {
  Rng rng(6);
  double worst = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = rng.normal() * std::pow(10.0, rng.uniform(-12, 2.5));
    const auto check = [&](double y, const Number& exact) {
      if (y == 0 || !std::isfinite(y) || std::fabs(y) < 1e-290) return;
      worst = std::max(worst, static_cast<double>(ldexp(abs(Number(y) - exact) / abs(exact), 52)));
    };
    check(math::exp(x), exp(Number(x)));
    check(math::expm1(x), mp::expm1(Number(x)));
    check(math::log(std::fabs(x)), log(abs(Number(x))));
    check(math::tanh(x), tanh(Number(x)));
    check(math::erf(x), mp::erf(Number(x)));
  }
  EXPECT_LT(worst, 4) << "budget: 4 ulp";
}

}  // namespace
}  // namespace opdiff
