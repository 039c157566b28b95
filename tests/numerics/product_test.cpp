// Matrix products whose zeros are skipped against those that add them up.
#include "numerics/product.h"

#include <gtest/gtest.h>

#include "numerics/nasty.h"
#include "numerics/sum.h"

namespace opdiff {
namespace {

std::vector<double> draw(Rng& rng, std::int64_t count, double zeros, bool any_size) {
  std::vector<double> x(static_cast<std::size_t>(count));
  for (double& v : x)
    v = rng.chance(zeros) ? 0 : round_to(any_size ? nasty(rng, {"some", 24, -140, 100}) : rng.normal(), kF32);
  return x;
}

SparseRows sparse(const ProductShape& s, const std::vector<double>& a) {
  SparseRows rows;
  for (std::int64_t i = 0; i < s.m * s.k; ++i) {
    if (const double v = a[static_cast<std::size_t>(i)]; v != 0) {
      rows.columns.push_back(i % s.k);
      rows.values.push_back(v);
    }
    if ((i + 1) % s.k == 0) rows.starts.push_back(std::ssize(rows.values));
  }
  return rows;
}

std::vector<double> transposed(const std::vector<double>& x, std::int64_t rows, std::int64_t columns) {
  std::vector<double> y;
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) y.push_back(x[static_cast<std::size_t>(r * columns + c)]);
  return y;
}

// Up to the last bits of double, which fused multiplications may change.
void expect_same(const Enclosure<double>& a, const Enclosure<double>& b) {
  EXPECT_EQ(a.v, b.v);
  EXPECT_NEAR(a.e, b.e, 1e-12 * b.e);
  EXPECT_NEAR(a.s, b.s, 1e-12 * b.s);
  EXPECT_EQ(a.overflow, b.overflow);
}

class SparseProducts : public testing::TestWithParam<bool> {};

TEST_P(SparseProducts, AreTheDenseOnes) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed, "sparse products");
    const ProductShape s{rng.integer(1, 20), rng.integer(1, 40),
                         rng.chance(0.2) ? rng.integer(257, 700) : rng.integer(1, 60)};
    const std::vector<double> a = draw(rng, s.m * s.k, rng.chance(0.5) ? 0.3 : 0.9, GetParam()),
                              b = draw(rng, s.k * s.n, 0.1, GetParam()), initial = draw(rng, s.n, 0.1, GetParam());
    const double* start = rng.chance(0.5) ? initial.data() : nullptr;
    const Profile profile = rng.chance(0.5) ? inner_f32(DType::f32) : inner_storage(DType::bf16);
    const ProfileScope scope(profile);
    std::vector<Enclosure<double>> quick(static_cast<std::size_t>(s.m * s.n)), slow = quick;
    transposed_products(s, sparse(s, a), b.data(), start, quick.data());
    // b is dense: the same sums with nothing skipped.
    products({s.n, s.m, s.k}, transposed(b, s.k, s.n).data(), transposed(a, s.m, s.k).data(), start, slow.data());
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    for (std::size_t i = 0; i < quick.size(); ++i) expect_same(quick[i], slow[i]);
  }
}

TEST_P(SparseProducts, AreTheirOwnTerms) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed, "products of zeros");
    const ProductShape s{rng.integer(1, 9), rng.integer(1, 40), rng.integer(1, 300)};
    const std::vector<double> a = draw(rng, s.m * s.k, 0.8, GetParam()), b = draw(rng, s.k * s.n, 0.1, GetParam());
    std::vector<Enclosure<double>> y(static_cast<std::size_t>(s.m * s.n));
    products(s, a.data(), b.data(), nullptr, y.data());
    for (std::int64_t m = 0; m < s.m; ++m)
      for (std::int64_t n = 0; n < s.n; ++n) {
        double value = 0, magnitudes = 0;
        int quantum = kNoQuantum;
        for (std::int64_t k = 0; k < s.k; ++k) {
          const double left = a[static_cast<std::size_t>(m * s.k + k)],
                       right = b[static_cast<std::size_t>(k * s.n + n)];
          value += left * right;
          magnitudes += std::fabs(left * right);
          if (left * right != 0) quantum = std::min(quantum, lowest_bit(left) + lowest_bit(right));
        }
        const Enclosure<double>& x = y[static_cast<std::size_t>(m * s.n + n)];
        if (x.overflow) continue;
        EXPECT_NEAR(x.v, value, 1e-13 * magnitudes);
        const double k = static_cast<double>(s.k),
                     radius = gamma(k, arithmetic().u) * magnitudes + k * arithmetic().eta / 2;
        if (x.exact())
          EXPECT_TRUE(sums_exactly(quantum, magnitudes, kF32));
        else
          EXPECT_NEAR(x.e, radius, 1e-9 * radius);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SparseProducts, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Any" : "Ordinary"; });

TEST(SparseProduct, AZeroMeetsAnInfinityAsNaN) {
  const ProductShape s{1, 2, 8};
  const std::vector<double> a = {0, 0, 0, 0, 0, 0, 0, 2};
  std::vector<double> b(16, 1);
  b[0] = kInfinity;          // of column 0, at a zero
  b[7 * 2 + 1] = kInfinity;  // of column 1, at the 2
  std::vector<Enclosure<double>> y(2);
  products(s, a.data(), b.data(), nullptr, y.data());
  EXPECT_TRUE(std::isnan(y[0].v));
  EXPECT_EQ(y[1].v, kInfinity);
}

}  // namespace
}  // namespace opdiff
