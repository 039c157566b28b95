// The elementwise functions of one input and their gradients against std::, their corners, and results that a backend
// might return.
#include <cmath>
#include <functional>

#include "judge/judge.h"
#include "ops/one_node.h"

namespace opdiff {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Verdict judged(const OneNode& node, const Tensor& got) {
  const Tensor* outputs[] = {&got};
  return judge_node(node.node, node.opset, node.pointers, outputs)[0];
}

struct GradientNode : OneNode {
  GradientNode(const std::string& op, Inputs inputs) : OneNode(op, 17, {}, std::move(inputs)) {
    node.domain = kGradientDomain;
  }
};

struct Function {
  const char* name;
  double (*value)(double);
  double (*slope)(double);
};

const Function kFunctions[] = {
    {"Exp", [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }},
    {"Log", [](double x) { return std::log(x); }, [](double x) { return 1 / x; }},
    {"Sqrt", [](double x) { return std::sqrt(x); }, [](double x) { return 0.5 / std::sqrt(x); }},
    {"Neg", [](double x) { return -x; }, [](double) { return -1.0; }},
    {"Reciprocal", [](double x) { return 1 / x; }, [](double x) { return -1 / (x * x); }},
    {"Abs", [](double x) { return std::fabs(x); }, [](double) { return 1.0; }},
    {"Erf", [](double x) { return std::erf(x); }, [](double x) { return M_2_SQRTPI * std::exp(-x * x); }},
};

TEST(Elementary, ValuesAndSlopes) {
  Rng rng(5);
  std::vector<double> x, dy;
  for (int i = 0; i < 300; ++i) {
    x.push_back(static_cast<float>(std::ldexp(rng.uniform(0.5, 1), static_cast<int>(rng.integer(-20, 6)))));
    dy.push_back(static_cast<float>(rng.normal()));
  }
  for (const Function& f : kFunctions) {
    std::vector<double> value, slope;
    for (std::size_t i = 0; i < x.size(); ++i) {
      value.push_back(f.value(x[i]));
      slope.push_back(dy[i] * f.slope(x[i]));
    }
    const Tensor y = run(f.name, 13, {}, {floats({20, 15}, x)});
    const GradientNode gradient(f.name, {floats({20, 15}, x), floats({20, 15}, dy)});
    const Tensor dx = gradient.run()->front();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      EXPECT_LE(std::fabs(y.at(at) - value[i]), ulp(value[i], kF32)) << f.name << " of " << x[i];
      EXPECT_LE(std::fabs(dx.at(at) - slope[i]), ulp(slope[i], kF32)) << f.name << " at " << x[i];
    }
  }
}

TEST(Elementary, Corners) {
  EXPECT_TRUE(
      same(run("Exp", 13, {}, {floats({5}, {0, -kInf, kInf, 89, kNan})}), floats({5}, {1, 0, kInf, kInf, kNan})));
  EXPECT_TRUE(same(run("Log", 13, {}, {floats({6}, {1, 0, -0.0, -1, kInf, kNan})}),
                   floats({6}, {0, -kInf, -kInf, kNan, kInf, kNan})));
  EXPECT_TRUE(same(run("Sqrt", 13, {}, {floats({4}, {4, -1, kInf, kNan})}), floats({4}, {2, kNan, kInf, kNan})));
  EXPECT_TRUE(same(run("Neg", 13, {}, {floats({4}, {0, -3, kInf, kNan})}), floats({4}, {-0.0, 3, -kInf, kNan})));
  EXPECT_TRUE(same(run("Neg", 7, {}, {integers(DType::i8, {-128, 127, 0})}), integers(DType::i8, {-128, -127, 0})));
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  EXPECT_TRUE(same(run("Neg", 7, {}, {int64s({least, 5})}), int64s({least, -5})));
}

TEST(Elementary, CornersOfTheOthers) {
  EXPECT_TRUE(same(run("Reciprocal", 13, {}, {floats({5}, {4, 0, -0.0, -kInf, kNan})}),
                   floats({5}, {0.25, kInf, -kInf, -0.0, kNan})));
  EXPECT_TRUE(same(run("Abs", 13, {}, {floats({4}, {-3, -0.0, -kInf, kNan})}).reshaped({4}),
                   floats({4}, {3, -0.0, kInf, kNan})));
  EXPECT_TRUE(same(run("Abs", 7, {}, {integers(DType::i8, {-128, -5, 7})}), integers(DType::i8, {-128, 5, 7})));
  EXPECT_TRUE(same(run("Abs", 7, {}, {integers(DType::u64, {-1, 3})}), integers(DType::u64, {-1, 3})));
  EXPECT_TRUE(same(run("Erf", 13, {}, {floats({5}, {0, kInf, -kInf, 1e-30, kNan})}),
                   floats({5}, {0, 1, -1, M_2_SQRTPI * static_cast<double>(1e-30f), kNan})));
}

TEST(Elementary, AnySlopeAtTheKinkOfAbsIsAConvention) {
  const GradientNode node("Abs", {floats({4}, {-2, 0, 3, kNan}), floats({4}, {5, 5, 5, 5})});
  EXPECT_TRUE(same(node.run()->front(), floats({4}, {-5, 0, 5, 0})));
  EXPECT_EQ(judged(node, floats({4}, {-5, 5, 5, 0})).explanation, "slope 1 at the kink, 0 at NaN");
  EXPECT_EQ(judged(node, floats({4}, {-5, -5, 5, kNan})).rung, Rung::convention);
  EXPECT_EQ(judged(node, floats({4}, {-5, 0, 5, 5})).rung, Rung::convention);
  EXPECT_EQ(judged(node, floats({4}, {-5, 4, 5, 0})).rung, Rung::defect);
  EXPECT_EQ(judged(node, floats({4}, {5, 0, 5, 0})).rung, Rung::defect);
}

TEST(Elementary, WhatIsWithinItsBudgetIsRounding) {
  const double y = static_cast<float>(std::exp(1.0));
  const OneNode node("Exp", 17, {}, {floats({1}, {1})});
  EXPECT_EQ(judged(node, floats({1}, {y})).rung, Rung::exact);
  EXPECT_EQ(judged(node, floats({1}, {y + 0x1p-21})).rung, Rung::rounding);       // 2 ulp
  EXPECT_EQ(judged(node, floats({1}, {y + 0x1p-17})).rung, Rung::approximation);  // 32 ulp
  EXPECT_EQ(judged(node, floats({1}, {y + 0x1p-8})).rung, Rung::defect);
}

TEST(Elementary, LogOfSubnormalDoublesHasAFiniteYardstick) {
  const OneNode node("Log", 17, {}, {tensor(DType::f64, {2}, {5e-324, 1e-310})});
  const double first = std::log(5e-324), second = std::log(1e-310);
  const double next = std::nextafter(first, 0);
  EXPECT_EQ(judged(node, tensor(DType::f64, {2}, {first, second})).rung, Rung::exact);
  EXPECT_EQ(judged(node, tensor(DType::f64, {2}, {next, second})).rung, Rung::rounding);
  EXPECT_EQ(judged(node, tensor(DType::f64, {2}, {first + 1e-3, second})).rung, Rung::defect);
}

TEST(Elementary, LogNearOneKeepsItsDigits) {
  const double x = 1 + 0x1p-20, y = std::log(x);
  const OneNode node("Log", 17, {}, {floats({2}, {x, 1})});
  EXPECT_EQ(judged(node, floats({2}, {y, 0})).rung, Rung::exact);
  EXPECT_EQ(judged(node, floats({2}, {y, 1e-9})).rung, Rung::approximation);  // the floor
  EXPECT_EQ(judged(node, floats({2}, {y, 1e-5})).rung, Rung::defect);
  EXPECT_EQ(judged(node, floats({2}, {y * 20, 0})).rung, Rung::defect);
}

TEST(Elementary, ASquareRootIsRoundedOnce) {
  const OneNode node("Sqrt", 17, {}, {floats({1}, {2})});
  const double y = static_cast<float>(std::sqrt(2.0));
  EXPECT_EQ(judged(node, floats({1}, {y})).rung, Rung::exact);
  EXPECT_EQ(judged(node, floats({1}, {y + 0x1p-22})).rung, Rung::approximation);
}

TEST(Elementary, GradientsAtTheEndOfTheDomain) {
  const GradientNode root("Sqrt", {floats({3}, {0, 0, -1}), floats({3}, {1, 0, 1})});
  EXPECT_TRUE(same(root.run()->front(), floats({3}, {kInf, kNan, kNan})));
  const GradientNode log("Log", {floats({3}, {0, -0.0, -2}), floats({3}, {1, 1, 1})});
  EXPECT_TRUE(same(log.run()->front(), floats({3}, {kInf, -kInf, -0.5})));
}

}  // namespace
}  // namespace opdiff
