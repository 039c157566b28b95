// Order-free sums: value, magnitudes and squares against naive sums, every order inside the radius, the exact-sum rule,
// flush to zero, overflow.
#include "numerics/sum.h"

#include <gtest/gtest.h>

#include "numerics/nasty.h"
#include "numerics/order.h"
#include "numerics/product.h"

namespace opdiff {
namespace {

std::vector<SumOrder> orders(std::uint64_t seed) {
  using Kind = SumOrder::Kind;
  std::vector<SumOrder> all;
  for (const bool fused : {false, true}) {
    for (const Kind kind : {Kind::sequential, Kind::reversed, Kind::pairwise, Kind::wide})
      all.push_back({kind, 1, fused, 0});
    for (const int lanes : {2, 4, 8, 16, 33}) all.push_back({Kind::lanes, lanes, fused, 0});
    for (std::uint64_t k = 0; k < 4; ++k) all.push_back({Kind::shuffled, 1, fused, seed + k});
  }
  return all;
}

// Draws of one character, so that sums are of normal, subnormal, cancelling, constant, large numbers.
std::vector<double> draw(Rng& rng, std::size_t n, int character) {
  std::vector<double> x(n);
  for (std::size_t k = 0; k < n; ++k) switch (character) {
      case 0: x[k] = rng.normal(); break;
      case 1: x[k] = nasty(rng, {"some", 24, -40, 40}); break;
      case 2: x[k] = kF32.lambda() * rng.normal(); break;
      case 3: x[k] = k % 2 == 0 || k == 0 ? rng.normal() : -x[k - 1] * (1 + rng.normal() * 1e-6); break;
      case 4: x[k] = 0.1; break;
      case 5: x[k] = rng.chance(0.5) ? 0 : rng.normal(); break;
      default: x[k] = static_cast<double>(k) * 0.01; break;
    }
  for (double& v : x) v = round_to(v, kF32);
  return x;
}
constexpr int kCharacters = 7;

template <class V>
Enclosure<V> enclosed_sum(const std::vector<double>& x) {
  Sum<Enclosure<V>> sum;
  for (const double v : x) sum.add(Enclosure<V>(v));
  return sum.result();
}

template <class V = double>
Enclosure<V> enclosed_dot(const std::vector<double>& a, const std::vector<double>& b, const double* initial = nullptr) {
  Enclosure<V> out;
  const std::vector<V> va(a.begin(), a.end()), vb(b.begin(), b.end());
  V start = initial ? *initial : 0;
  products({1, 1, static_cast<std::int64_t>(a.size())}, va.data(), vb.data(), initial ? &start : nullptr, &out);
  return out;
}

TEST(SumOfEnclosures, AgreesWithNaiveSums) {
  Rng rng(1);
  for (int i = 0; i < 400; ++i) {
    const std::vector<double> x = draw(rng, static_cast<std::size_t>(rng.integer(1, 300)), i % kCharacters);
    long double total = 0, magnitudes = 0, squares = 0;
    bool first = true;
    std::size_t terms = 0;
    for (const double v : x) {
      if (v == 0) continue;
      total += v;
      magnitudes += std::fabs(v);
      if (!first) squares += total * total;
      first = false;
      ++terms;
    }
    const Enclosure<double> y = enclosed_sum<double>(x);
    EXPECT_NEAR(y.v, static_cast<double>(total), 1e-13 * static_cast<double>(magnitudes));
    if (y.exact()) continue;
    const double u = 0x1p-24;
    EXPECT_NEAR(y.e, gamma(static_cast<double>(terms) - 1, u) * static_cast<double>(magnitudes), 1e-9 * y.e);
    EXPECT_NEAR(y.s, u * u / 3 * static_cast<double>(squares), 1e-9 * y.s);
  }
}

TEST(SumOfEnclosures, HoldsEveryOrder) {
  Rng rng(2);
  double largest = 0;
  for (int i = 0; i < 700; ++i) {
    const std::vector<double> x = draw(rng, static_cast<std::size_t>(rng.integer(1, 200)), i % kCharacters);
    const Enclosure<double> y = enclosed_sum<double>(x);
    for (const SumOrder& order : orders(rng.next())) {
      const double got = sum_in_order(x, {}, order, kF32), rho = y.e * 0x1p-29;
      EXPECT_LE(std::fabs(got - y.v),
                y.e + rho + 0x1p-53 * std::fabs(y.v) + (order.kind == SumOrder::Kind::wide ? ulp(y.v, kF32) / 2 : 0))
          << "case " << i << " order " << static_cast<int>(order.kind) << " lanes " << order.lanes << " n " << x.size();
      if (y.e > 0) largest = std::max(largest, std::fabs(got - y.v) / y.e);
    }
  }
  EXPECT_GT(largest, 0.3) << "the attack comes near";
}

TEST(Dot, AgreesWithNaiveSums) {
  Rng rng(3);
  for (int i = 0; i < 400; ++i) {
    const std::int64_t m = rng.integer(1, 9), n = rng.integer(1, 40);
    const std::int64_t k = i % 20 == 19 ? rng.integer(250, 600) : rng.integer(0, 60);  // beyond one panel
    std::vector<double> a = draw(rng, static_cast<std::size_t>(m * k), i % kCharacters),
                        b = draw(rng, static_cast<std::size_t>(k * n), (i + 1) % kCharacters),
                        start = draw(rng, static_cast<std::size_t>(m), 0);
    const bool starts = rng.chance(0.5);
    std::vector<Enclosure<double>> out(static_cast<std::size_t>(m * n));
    products({m, n, k}, a.data(), b.data(), starts ? start.data() : nullptr, out.data());
    std::vector<double> blas(out.size());
    products({m, n, k}, a.data(), b.data(), starts ? start.data() : nullptr, blas.data());
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        long double total = starts ? start[static_cast<std::size_t>(r)] : 0, magnitudes = std::fabs(total), squares = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          const long double p =
              static_cast<long double>(a[static_cast<std::size_t>(r * k + j)]) * b[static_cast<std::size_t>(j * n + c)];
          total += p;
          magnitudes += std::fabs(p);
          if (p != 0) squares += total * total + p * p;
        }
        const auto at = static_cast<std::size_t>(r * n + c);
        const double close = 1e-13 * static_cast<double>(magnitudes);
        EXPECT_NEAR(out[at].v, static_cast<double>(total), close) << m << "x" << n << "x" << k;
        EXPECT_NEAR(blas[at], static_cast<double>(total), close) << m << "x" << n << "x" << k;
        if (out[at].exact()) continue;
        const double u = 0x1p-24, terms = static_cast<double>(k + (starts ? 1 : 0));
        EXPECT_NEAR(out[at].e, gamma(terms, u) * static_cast<double>(magnitudes) + terms * kF32.eta() / 2,
                    1e-9 * out[at].e);
        EXPECT_NEAR(out[at].s, u * u / 3 * static_cast<double>(squares) + terms * kF32.eta() * kF32.eta() / 12,
                    1e-9 * out[at].s);
      }
  }
}

TEST(Dot, HoldsEveryOrderFusedOrNot) {
  Rng rng(4);
  for (int i = 0; i < 700; ++i) {
    const auto n = static_cast<std::size_t>(rng.integer(1, 200));
    const std::vector<double> a = draw(rng, n, i % kCharacters), b = draw(rng, n, i / kCharacters % kCharacters);
    const Enclosure<double> y = enclosed_dot(a, b);
    for (const SumOrder& order : orders(rng.next())) {
      const double got = sum_in_order(a, b, order, kF32);
      EXPECT_LE(std::fabs(got - y.v), y.e * (1 + 0x1p-29) + 0x1p-53 * std::fabs(y.v))
          << "case " << i << " order " << static_cast<int>(order.kind);
    }
  }
}

TEST(Dot, QuadAgreesWithDouble) {
  Rng rng(5);
  for (int i = 0; i < 200; ++i) {
    const auto n = static_cast<std::size_t>(rng.integer(0, 50));
    const std::vector<double> a = draw(rng, n, i % kCharacters), b = draw(rng, n, 0);
    const double start = rng.normal();
    const Enclosure<double> x = enclosed_dot(a, b, i % 2 ? &start : nullptr);
    const ProfileScope scope(inner_f32(DType::f32));
    const Enclosure<Quad> y = enclosed_dot<Quad>(a, b, i % 2 ? &start : nullptr);
    EXPECT_NEAR(x.v, y.value(), 1e-12 * (1 + std::fabs(x.v)));
    if (x.exact() || y.exact()) continue;
    EXPECT_NEAR(x.e, y.e, 1e-9 * y.e);
    EXPECT_NEAR(x.s, static_cast<double>(y.s), 1e-9 * x.s);
  }
}

TEST(ExactSums, HaveRadiusZeroUpToTheLastBit) {
  // 2^24 in f32 as a sum of integers: exact; one bit more, or half a unit: not.
  const double top = 0x1p24;
  EXPECT_TRUE(enclosed_sum<double>({top - 2, 1, 1}).exact());
  EXPECT_FALSE(enclosed_sum<double>({top - 2, 1, 2}).exact());
  EXPECT_FALSE(enclosed_sum<double>({top - 2, 0.5, 1}).exact());
  EXPECT_TRUE(enclosed_sum<double>({top / 2 - 1, 0.5, 0.5}).exact());
  EXPECT_TRUE(enclosed_sum<double>({0x1p100, 0x1p100, 0x1.8p101}).exact());
  EXPECT_TRUE(enclosed_sum<double>({}).exact());
  EXPECT_TRUE(enclosed_sum<double>({0, -0.0}).exact());
  EXPECT_TRUE(enclosed_sum<double>({kF32.eta(), 3 * kF32.eta()}).exact());
  EXPECT_TRUE(enclosed_dot({3, 5, -7}, {0.25, 2, 0.5}).exact());
  EXPECT_TRUE(enclosed_dot({0x1p12, 0x1p12 - 1}, {0x1p11, 0x1p11}).exact());
  EXPECT_FALSE(enclosed_dot({0x1p24, 1}, {1, 1}).exact());
  EXPECT_FALSE(enclosed_dot({kF32.lambda(), 1}, {0.5 + 0x1p-24, 0}).exact()) << "a product below eta is rounded";
  EXPECT_FALSE(enclosed_sum<double>({0x1.fffffep127, 0x1.fffffep127}).exact()) << "beyond the range";
  const double start = 0.125;
  EXPECT_TRUE(enclosed_dot({1, 2}, {1, 1}, &start).exact());
  const double odd = 0x1p-30;
  EXPECT_FALSE(enclosed_dot({1, 2}, {1, 1}, &odd).exact());
}

TEST(ExactSums, OfF64WhoseMagnitudesDoubleCannotAddUp) {
  // 2^-1021 and the smallest number: no f64, and the double sum of the two is 2^-1021.
  const ProfileScope scope(inner_f32(DType::f64));
  Sum<Enclosure<Quad>> sum;
  for (const double term : {0x1p-1022, 0x1p-1022, 0x1p-1074}) sum.add(Enclosure<Quad>(term));
  EXPECT_FALSE(sum.result().exact());
  Sum<Enclosure<Quad>> less;
  for (const double term : {0x1p-1022, 0x1p-1023, 0x1p-1074}) less.add(Enclosure<Quad>(term));
  EXPECT_TRUE(less.result().exact());
}

TEST(ExactSums, AreTheSameInEveryOrder) {
  Rng rng(6);
  int exact = 0;
  for (int i = 0; i < 300; ++i) {
    const auto n = static_cast<std::size_t>(rng.integer(1, 100));
    const int scale = static_cast<int>(rng.integer(-60, 60));
    std::vector<double> a(n), b(n);
    for (std::size_t k = 0; k < n; ++k) {
      a[k] = std::ldexp(static_cast<double>(rng.integer(-900, 900)), scale);
      b[k] = static_cast<double>(rng.integer(-900, 900));
    }
    const Enclosure<double> y = enclosed_dot(a, b);
    exact += y.exact();
    if (!y.exact()) continue;
    for (const SumOrder& order : orders(rng.next())) EXPECT_EQ(sum_in_order(a, b, order, kF32), y.v);
  }
  EXPECT_GT(exact, 100);
  EXPECT_LT(exact, 300);
}

// Sums of one format whose terms are subnormal, with every intermediate flushed.
TEST(FlushToZero, IsHeldByItsProfile) {
  Profile profile = inner_f32(DType::f32);
  profile.flush_to_zero = true;
  const ProfileScope scope(profile);
  Rng rng(7);
  const double lambda = kF32.lambda();
  const auto flush = [&](double x) { return std::fabs(x) < lambda ? 0 : x; };
  for (int i = 0; i < 2000; ++i) {
    const auto n = static_cast<std::size_t>(rng.integer(1, 40));
    std::vector<double> a(n), b(n);
    for (std::size_t k = 0; k < n; ++k) {
      a[k] = round_to(rng.normal() * lambda * std::pow(10.0, rng.uniform(-2, 3)), kF32);
      b[k] = round_to(rng.normal() * std::pow(10.0, rng.uniform(-3, 1)), kF32);
    }
    for (const bool dot : {false, true}) {
      const Enclosure<double> y = dot ? enclosed_dot(a, b) : enclosed_sum<double>(a);
      double sum = 0;
      for (std::size_t k = 0; k < n; ++k) {
        const double p = dot ? flush(round_to(flush(a[k]) * flush(b[k]), kF32)) : flush(a[k]);
        sum = flush(round_to(sum + p, kF32));
      }
      EXPECT_LE(std::fabs(sum - y.v), y.e * (1 + 1e-9)) << "case " << i << (dot ? " dot" : " sum");
    }
  }
}

TEST(Overflow, OfPartialSumsIsSaid) {
  const double big = 0x1.8p127;
  const auto sum = [](std::vector<double> x) { return enclosed_sum<double>(x).overflow; };
  EXPECT_EQ(sum({1, 2, 3.7}), kNoOverflow);
  EXPECT_EQ(sum({big, big, -1}), kPlusInfinity);
  EXPECT_EQ(sum({-big, -big, 1}), kMinusInfinity);
  EXPECT_EQ(sum({big, big, -big, -big}), kPlusInfinity | kMinusInfinity | kNaN) << "depending on the order";
  EXPECT_EQ(sum({big, big, -big}), kPlusInfinity) << "a number or +infinity, never -infinity or NaN";
  EXPECT_EQ(enclosed_dot({big, big}, {1, 1}).overflow, kPlusInfinity);
  EXPECT_EQ(enclosed_dot({big, big}, {1, -1}).overflow, kNoOverflow);
  EXPECT_EQ(enclosed_dot({big, 1, 3}, {4, 1, 1.1}).overflow, kPlusInfinity) << "one product";
  EXPECT_EQ(enclosed_dot({big, big}, {4, -4}).overflow, kPlusInfinity | kMinusInfinity | kNaN);
}

TEST(Overflow, NearTheEndOfF64) {
  const ProfileScope scope(inner_f32(DType::f64));
  const auto overflow = [](std::vector<double> x) { return enclosed_sum<Quad>(x).overflow; };
  EXPECT_EQ(overflow({1e307, 2e307}), kNoOverflow);
  EXPECT_TRUE(overflow({1e308, 1e308}) & kPlusInfinity);
  EXPECT_TRUE(overflow({1e308, 1e308, -1e308}) & kPlusInfinity);
  EXPECT_TRUE(enclosed_dot<Quad>({1e200, 1}, {1e200, 1}).overflow & kPlusInfinity);
  EXPECT_TRUE(enclosed_dot<Quad>({-1e200, 1}, {1e200, 1}).overflow & kMinusInfinity);
  EXPECT_EQ(enclosed_dot<Quad>({1e150, 1}, {1e150, 1}).overflow, kNoOverflow);
}

TEST(Overflow, OfEverySequentialOrderIsCovered) {
  Rng rng(8);
  int infinite = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> x(static_cast<std::size_t>(rng.integer(2, 8)));
    for (double& v : x) v = round_to((rng.chance(0.5) ? 1 : -1) * kF32.max_finite() * rng.uniform(0.2, 1), kF32);
    const Enclosure<double> y = enclosed_sum<double>(x);
    for (const SumOrder& order : orders(rng.next())) {
      if (order.kind == SumOrder::Kind::wide) continue;
      const double got = sum_in_order(x, {}, order, kF32);
      if (std::isfinite(got)) continue;
      ++infinite;
      EXPECT_TRUE(y.overflow & (std::isnan(got) ? kNaN
                                : got > 0       ? kPlusInfinity
                                                : kMinusInfinity))
          << got << " case " << i;
    }
  }
  EXPECT_GT(infinite, 100);
}

TEST(Dgemm, CarriesNonFiniteValues) {
  const double inf = HUGE_VAL, nan = std::nan("");
  for (const std::int64_t n : {1, 3, 16, 17, 40}) {
    for (const std::int64_t m : {1, 5}) {
      std::vector<double> a(static_cast<std::size_t>(m * 3), 1), b(static_cast<std::size_t>(3 * n), 0),
          y(static_cast<std::size_t>(m * n));
      a[1] = inf;  // infinity times zero
      products({m, n, 3}, a.data(), b.data(), nullptr, y.data());
      for (std::int64_t j = 0; j < n; ++j) EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(j)])) << m << " " << n;
      a[1] = 0;
      b[0] = nan;
      a[0] = 0;
      products({m, n, 3}, a.data(), b.data(), nullptr, y.data());
      EXPECT_TRUE(std::isnan(y[0]));
      std::vector<Enclosure<double>> e(y.size());
      products({m, n, 3}, a.data(), b.data(), nullptr, e.data());
      EXPECT_TRUE(std::isnan(e[0].v));
    }
  }
}

TEST(Products, OfNoTermsAreTheInitialValues) {
  const double start[2] = {3, 0.1};
  std::vector<Enclosure<double>> e(6);
  std::vector<double> y(6, -1);
  products({2, 3, 0}, nullptr, nullptr, start, e.data());
  products({2, 3, 0}, nullptr, nullptr, start, y.data());
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(e[i].v, start[i / 3]);
    EXPECT_EQ(y[i], start[i / 3]);
  }
  products({2, 3, 0}, static_cast<const double*>(nullptr), nullptr, nullptr, e.data());
  EXPECT_TRUE(e[5].exact());
  EXPECT_EQ(e[5].v, 0);
  products({0, 3, 2}, static_cast<const double*>(nullptr), y.data(), nullptr, e.data());
}

TEST(Products, OfIntegersWrapAround) {
  const std::int64_t a[2] = {std::int64_t{1} << 62, 3}, b[2] = {4, -5};
  std::int64_t y = 0;
  products({1, 1, 2}, a, b, nullptr, &y);
  EXPECT_EQ(y, -15);
}

}  // namespace
}  // namespace opdiff
