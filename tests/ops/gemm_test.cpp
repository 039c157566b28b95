#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "judge/judge.h"
#include "one_call.h"

namespace opdiff::testing_ops {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Gemm, ByHand) {
  const Tensor a = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), b = tensor({3, 2}, {7, 8, 9, 10, 11, 12});
  EXPECT_TRUE(evaluate("Gemm", {a, b})[0].bit_equal(tensor({2, 2}, {58, 64, 139, 154})));
  EXPECT_TRUE(evaluate("Gemm", {a, b, tensor({2}, {1, 2})}, {{"alpha", 0.5f}, {"beta", 2.0f}})[0].bit_equal(
      tensor({2, 2}, {31, 36, 71.5, 81})));
  EXPECT_TRUE(evaluate("Gemm", {a, a}, {{"transB", std::int64_t{1}}})[0].bit_equal(tensor({2, 2}, {14, 32, 32, 77})));
  EXPECT_TRUE(evaluate("Gemm", {a, a}, {{"transA", std::int64_t{1}}})[0].bit_equal(
      tensor({3, 3}, {17, 22, 27, 22, 29, 36, 27, 36, 45})));
}

TEST(Gemm, EveryShapeOfC) {
  for (std::uint64_t index = 0; index < 200; ++index) {
    Rng rng(7, "Gemm", index);
    const std::int64_t m = rng.integer(1, 5), n = rng.integer(1, 5), k = rng.integer(1, 6);
    const bool trans_a = rng.chance(0.5), trans_b = rng.chance(0.5), has_c = rng.chance(0.9);
    const DType dtype = rng.pick(std::vector<DType>{DType::f32, DType::f64, DType::i32, DType::i64});
    const Tensor a = whole_numbers(rng, trans_a ? Shape{k, m} : Shape{m, k}, -8, 8, dtype);
    const Tensor b = whole_numbers(rng, trans_b ? Shape{n, k} : Shape{k, n}, -8, 8, dtype);
    const std::vector<Shape> shapes{{}, {1}, {n}, {1, 1}, {1, n}, {m, 1}, {m, n}};
    const Tensor c = whole_numbers(rng, rng.pick(shapes), -8, 8, dtype);
    const float alpha = static_cast<float>(rng.integer(-2, 3)), beta = static_cast<float>(rng.integer(-2, 3));
    const Shape& cs = c.shape();
    const std::int64_t column_step = cs.empty() || cs.back() == 1 ? 0 : 1;
    const std::int64_t row_step = cs.size() == 2 && cs[0] > 1 ? cs[1] : 0;
    std::vector<double> right;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += a.at(trans_a ? l * m + i : i * k + l) * b.at(trans_b ? j * k + l : l * n + j);
        right.push_back(alpha * sum + (has_c ? beta * c.at(i * row_step + j * column_step) : 0));
      }
    Inputs inputs{a, b};
    if (has_c) inputs.push_back(c);
    const Attributes attributes{
        {"alpha", alpha}, {"beta", beta}, {"transA", std::int64_t{trans_a}}, {"transB", std::int64_t{trans_b}}};
    EXPECT_EQ(evaluate("Gemm", inputs, attributes)[0].to_doubles(), right) << "case " << index;
    if (!is_float(dtype)) continue;
    // Whole numbers: every formula gives the same exact values, with alpha = beta = 1 too.
    const OneCall one("Gemm", inputs, attributes, 17, 1);
    for (std::size_t f = 0; f < one.op().formulas.size(); ++f)
      EXPECT_EQ(enclose(one.op(), one.call(), inner_f32(dtype), static_cast<int>(f))[0].centre, right)
          << "case " << index << " formula " << f;
    const OneCall plain("Gemm", inputs, {{"transA", std::int64_t{trans_a}}, {"transB", std::int64_t{trans_b}}}, 17, 1);
    const EnclosedTensor first = enclose(plain.op(), plain.call(), inner_f32(dtype), 0)[0];
    for (int f = 1; f < 3; ++f)
      EXPECT_EQ(enclose(plain.op(), plain.call(), inner_f32(dtype), f)[0].centre, first.centre) << "case " << index;
    for (std::int64_t i = 0; i < m * n; ++i) {
      const Reduction r = one.op().reduction(one.call(), 0, i);
      double total = 0;
      for (std::size_t l = 0; l < r.a.size(); ++l) total += r.a[l] * r.b[l];
      EXPECT_EQ(total * r.factor + r.bias, right[static_cast<std::size_t>(i)]) << "case " << index;
    }
  }
}

TEST(Gemm, FormulasAgree) {
  Rng rng(8);
  const auto normal = [&](Shape shape) {
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (double& v : values) v = rng.normal();
    return tensor(shape, values);
  };
  for (const Shape& c : {Shape{3}, Shape{4, 1}, Shape{4, 3}}) {
    expect_formulas_agree("Gemm", {normal({4, 9}), normal({9, 3}), normal(c)});
    expect_formulas_agree("Gemm", {normal({4, 9}), normal({9, 3}), normal(c)}, {{"alpha", 0.3f}, {"beta", -1.7f}});
  }
}

TEST(Gemm, IntegersWrapAround) {
  const Tensor a = tensor({1, 1}, {65536}, DType::i32), b = tensor({1, 1}, {65537}, DType::i32);
  EXPECT_EQ(evaluate("Gemm", {a, b})[0].int_at(0), 65536);
  const Tensor u = tensor({1, 1}, {2}, DType::u64);
  EXPECT_EQ(static_cast<std::uint64_t>(evaluate("Gemm", {u, u}, {{"alpha", -1.0f}})[0].int_at(0)),
            ~std::uint64_t{0} - 3);
  EXPECT_NE(refusal("Gemm", {a, b}, {{"beta", 0.5f}}).find("beta"), std::string::npos);
}

TEST(Gemm, AFactorOfZeroMayLeaveItsOperandUnread) {
  const OneCall one("Gemm", {tensor({1, 1}, {2}), tensor({1, 1}, {3}), tensor({1}, {kNaN})}, {{"beta", 0.0f}}, 17, 1);
  const auto rung = [&](double y) {
    const Tensor got = tensor({1, 1}, {y});
    const std::vector<const Tensor*> outputs{&got};
    return judge_node(one.node, one.opset, one.pointers, outputs)[0].rung;
  };
  EXPECT_EQ(rung(kNaN), Rung::exact);
  EXPECT_EQ(rung(6), Rung::convention);
  EXPECT_EQ(rung(5), Rung::defect);
}

TEST(Gemm, AlphaMayOverflowAnOperand) {
  // alpha a (or alpha b) leaves the format, alpha (a b) does not.
  struct Example {
    DType dtype;
    double a, b;
  };
  const float alpha = -2.5f;
  for (const auto& [dtype, a, b] : {Example{DType::f32, 2e38, 0.25}, Example{DType::f32, 0.25, 2e38},
                                    Example{DType::f64, 1.5e308, 0.25}, Example{DType::f64, 0.25, 1.5e308}})
    for (const bool has_c : {false, true}) {
      Inputs inputs{tensor({1, 1}, {a}, dtype), tensor({1, 1}, {b}, dtype)};
      if (has_c) inputs.push_back(tensor({1}, {2}, dtype));
      const auto expect = [&](const OneCall& one, double y, bool right) {
        const Tensor got = tensor({1, 1}, {y}, dtype);
        const std::vector<const Tensor*> outputs{&got};
        const Verdict v = judge_node(one.node, one.opset, one.pointers, outputs)[0];
        EXPECT_EQ(v.rung <= Rung::rounding && !(v.unproven && std::isfinite(y)), right)
            << dtype_name(dtype) << " " << a << " " << b << " C " << has_c << ": " << y << " is " << to_string(v.rung)
            << " " << v.note;
      };
      const OneCall one("Gemm", inputs, {{"alpha", alpha}}, 17, 1);
      const double right = values(one.op(), one.call())[0].at(0);
      expect(one, right, true);
      expect(one, -HUGE_VAL, true);
      expect(one, HUGE_VAL, false);
      expect(one, kNaN, false);
      expect(one, right / 2, false);
    }
}

TEST(Gemm, AlphaMayOverflowAnOperandOfTheGradient) {
  // dA = alpha dY B, dB = alpha A dY.
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double most = dtype == DType::f32 ? 2e38 : 1.2e308;
    OneCall one("Gemm", {tensor({1, 1}, {0.5}, dtype), tensor({1, 1}, {0.25}, dtype), tensor({1, 1}, {most}, dtype)},
                {{"alpha", -2.5f}}, 17, 2);
    one.node.domain = kGradientDomain;
    const auto judge = [&](double da, double db) {
      const Tensor left = tensor({1, 1}, {da}, dtype), right = tensor({1, 1}, {db}, dtype);
      const std::vector<const Tensor*> outputs{&left, &right};
      return judge_node(one.node, one.opset, one.pointers, outputs);
    };
    const double da = -2.5 * 0.25 * most, db = -2.5 * 0.5 * most;
    for (const Verdict& v : judge(-HUGE_VAL, -HUGE_VAL)) EXPECT_LE(v.rung, Rung::rounding) << v.note;
    const std::vector<Verdict> wrong = judge(HUGE_VAL, kNaN), half = judge(da / 2, db / 2);
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_GT(wrong[k].rung, Rung::rounding);
      EXPECT_EQ(half[k].rung, Rung::defect);
    }
  }
}

TEST(Gemm, ByOpset) {
  const Tensor a = tensor({1, 1}, {1}), i = tensor({1, 1}, {1}, DType::i32), h = tensor({1, 1}, {1}, DType::bf16);
  EXPECT_NE(refusal("Gemm", {a, a}, {}, 9), "");
  EXPECT_NE(refusal("Gemm", {a, a, std::nullopt}, {}, 9), "");
  EXPECT_EQ(refusal("Gemm", {a, a, std::nullopt}, {}, 11), "");
  EXPECT_NE(refusal("Gemm", {i, i, i}, {}, 7), "");
  EXPECT_EQ(refusal("Gemm", {i, i, i}, {}, 9), "");
  EXPECT_NE(refusal("Gemm", {h, h}, {}, 11), "");
  EXPECT_EQ(refusal("Gemm", {h, h}, {}, 13), "");
}

}  // namespace
}  // namespace opdiff::testing_ops
