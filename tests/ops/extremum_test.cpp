// Max, Min, ReduceMax and ReduceMin against plain loops; NaN, ties and sets of nothing.
#include <algorithm>
#include <cmath>
#include <set>

#include "judge/judge.h"
#include "ops/one_node.h"

namespace opdiff {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Verdict judged(const OneNode& node, const Tensor& got, std::size_t output = 0) {
  std::vector<const Tensor*> outputs(node.node.outputs.size(), nullptr);
  outputs[output] = &got;
  return judge_node(node.node, node.opset, node.pointers, outputs)[output];
}

// The gradient of every input.
struct GradientNode : OneNode {
  GradientNode(const std::string& op, Inputs given, int opset = 17, Attributes attributes = {}, int wanted = -1)
      : OneNode(op, opset, std::move(attributes), given, wanted < 0 ? static_cast<int>(given.size()) - 1 : wanted) {
    node.domain = kGradientDomain;
  }
};

TEST(Max, AnyNumberOfInputsThatBroadcast) {
  const Tensor column = floats({2, 1}, {1, 4}), row = floats({3}, {0, 3, 5}), one = floats({}, {2});
  EXPECT_TRUE(same(run("Max", 8, {}, {column, row, one}), floats({2, 3}, {2, 3, 5, 4, 4, 5})));
  EXPECT_TRUE(same(run("Min", 13, {}, {column, row, one}), floats({2, 3}, {0, 1, 1, 0, 2, 2})));
  EXPECT_TRUE(same(run("Max", 7, {}, {row}), row));
  EXPECT_TRUE(same(run("Max", 13, {}, {floats({0, 3}, {}), row}), floats({0, 3}, {})));
}

TEST(Max, Integers) {
  EXPECT_TRUE(same(run("Max", 12, {}, {integers(DType::i8, {-128, 127}), integers(DType::i8, {0, -1})}),
                   integers(DType::i8, {0, 127})));
  // -1 is 2^64 - 1.
  EXPECT_TRUE(same(run("Max", 12, {}, {integers(DType::u64, {-1, 2}), integers(DType::u64, {5, 3})}),
                   integers(DType::u64, {-1, 3})));
  EXPECT_TRUE(same(run("Min", 12, {}, {integers(DType::u64, {-1, 2}), integers(DType::u64, {5, 3})}),
                   integers(DType::u64, {5, 2})));
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  EXPECT_TRUE(same(run("Min", 12, {}, {int64s({least}), int64s({least + 1})}), int64s({least})));
}

TEST(Max, NanIsAConvention) {
  const OneNode node("Max", 17, {},
                     {floats({4}, {5, kNan, kNan, 1}), floats({4}, {kNan, 2, kNan, 2}), floats({4}, {3, 3, kNan, 0})});
  EXPECT_TRUE(same(node.run()->front(), floats({4}, {kNan, kNan, kNan, 2})));
  const auto verdict = [&](const std::vector<double>& y) { return judged(node, floats({4}, y)); };
  EXPECT_EQ(verdict({kNan, kNan, kNan, 2}).rung, Rung::exact);
  EXPECT_EQ(verdict({5, 3, kNan, 2}).explanation, "NaN is ignored");
  EXPECT_EQ(verdict({3, 3, kNan, 2}).explanation, "NaN gives way to the number after it");
  EXPECT_EQ(verdict({5, kNan, kNan, 2}).rung, Rung::convention);
  EXPECT_EQ(verdict({2, 3, kNan, 2}).rung, Rung::defect);
  EXPECT_EQ(verdict({5, 3, 3, 2}).rung, Rung::defect);
  EXPECT_EQ(verdict({5, 3, kNan, 1}).rung, Rung::defect);
}

TEST(Max, ASubnormalMayBeZero) {
  const OneNode node("Max", 17, {}, {floats({1}, {1e-40}), floats({1}, {-1})});
  EXPECT_EQ(judged(node, floats({1}, {0})).rung, Rung::flush_to_zero);
}

TEST(Max, GradientsGoToTheWinner) {
  const GradientNode node("Max",
                          {floats({2, 1}, {1, 4}), floats({3}, {0, 3, 5}), floats({2, 3}, {1, 2, 4, 8, 16, 32})});
  const auto gradients = *node.run();
  EXPECT_TRUE(same(gradients[0], floats({2, 1}, {1, 24})));
  EXPECT_TRUE(same(gradients[1], floats({3}, {0, 2, 36})));
  // Of equal ones, and of NaN, the first.
  const GradientNode ties(
      "Min", {floats({3}, {7, 1, kNan}), floats({3}, {1, 1, kNan}), floats({3}, {1, 2, 0}), floats({3}, {1, 2, 4})});
  const auto first = *ties.run();
  EXPECT_TRUE(same(first[0], floats({3}, {0, 2, 4})));
  EXPECT_TRUE(same(first[1], floats({3}, {1, 0, 0})));
  EXPECT_TRUE(same(first[2], floats({3}, {0, 0, 0})));
}

TEST(Max, TiesAreConventionsWithSumsOfTheirOwn) {
  // 0.1 is no number of f32: three of them are rounded on the way.
  const Tensor dy = floats({3, 2}, {0.1, 0.1, 0.1, 1, 0.1, 1});
  const GradientNode node("Max", {floats({3, 2}, {5, 1, 5, 1, 5, 1}), floats({2}, {5, 9}), dy});
  const float tenth = 0.1f;
  const float all = tenth + tenth + tenth, half = tenth / 2 + tenth / 2 + tenth / 2;
  const auto verdict = [&](double first, double second) {
    const Tensor b = floats({2}, {second, static_cast<float>(tenth + 2)});
    return std::pair(judged(node, floats({3, 2}, {first, 0, first, 0, first, 0})), judged(node, b, 1));
  };
  EXPECT_EQ(verdict(tenth, 0).first.rung, Rung::exact);
  EXPECT_EQ(verdict(tenth, 0).second.rung, Rung::exact);
  EXPECT_EQ(verdict(0, all).first.explanation, "the last of equal inputs");
  EXPECT_EQ(verdict(0, all).second.explanation, "the last of equal inputs");
  EXPECT_EQ(verdict(tenth / 2, half).first.rung, Rung::convention);
  EXPECT_EQ(verdict(tenth / 2, half).second.rung, Rung::convention);
  EXPECT_EQ(verdict(tenth / 4, half * 1.01).first.rung, Rung::defect);
  EXPECT_EQ(verdict(tenth / 4, half * 1.01).second.rung, Rung::defect);
}

TEST(Max, ThreeTiesAreSharedAtOnceOrInPairs) {
  const GradientNode node("Max", {floats({1}, {2}), floats({1}, {2}), floats({1}, {2}), floats({1}, {12})});
  const auto rung = [&](std::size_t input, double value) { return judged(node, floats({1}, {value}), input).rung; };
  EXPECT_EQ(rung(0, 12), Rung::exact);
  EXPECT_EQ(rung(0, 4), Rung::convention);  // a third
  EXPECT_EQ(rung(0, 3), Rung::convention);  // half of a half
  EXPECT_EQ(rung(0, 6), Rung::defect);
  EXPECT_EQ(rung(2, 6), Rung::convention);
  EXPECT_EQ(rung(2, 12), Rung::convention);
  EXPECT_EQ(rung(2, 3), Rung::defect);
}

TEST(Max, NanPassesToBothOfAPair) {
  const GradientNode node("Max", {floats({2}, {kNan, 1}), floats({2}, {3, kNan}), floats({2}, {1, 2})});
  EXPECT_EQ(judged(node, floats({2}, {1, 0})).rung, Rung::exact);
  EXPECT_EQ(judged(node, floats({2}, {1, 2})).rung, Rung::convention);
  EXPECT_EQ(judged(node, floats({2}, {0, 0})).rung, Rung::convention);
  EXPECT_EQ(judged(node, floats({2}, {1, 2}), 1).rung, Rung::convention);
}

TEST(ReduceMax, AnyAxes) {
  for (std::uint64_t index = 0; index < 200; ++index) {
    Rng rng(10, "ReduceMax", index);
    Shape shape;
    for (std::int64_t d = rng.integer(1, 5); d > 0; --d) shape.push_back(rng.integer(1, 4));
    const auto rank = static_cast<std::int64_t>(shape.size());
    std::set<std::int64_t> reduced;
    std::vector<std::int64_t> axes;
    for (std::int64_t d = rank - 1; d >= 0; --d)
      if (rng.chance(0.5)) {
        reduced.insert(d);
        axes.push_back(rng.chance(0.5) ? d : d - rank);
      }
    if (axes.empty())
      for (std::int64_t d = 0; d < rank; ++d) reduced.insert(d);
    Shape kept = shape;
    for (const std::int64_t d : reduced) kept[static_cast<std::size_t>(d)] = 1;
    const Tensor x = testing_ops::whole_numbers(rng, shape);
    std::vector<double> most(static_cast<std::size_t>(element_count(kept)), -kInf), least(most.size(), kInf),
        sum(most.size());
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const Shape at = unravel(i, shape), strides = strides_of(kept);
      std::size_t o = 0;
      for (std::size_t d = 0; d < at.size(); ++d) o += static_cast<std::size_t>(kept[d] == 1 ? 0 : at[d] * strides[d]);
      most[o] = std::max(most[o], x.at(i));
      least[o] = std::min(least[o], x.at(i));
      sum[o] += x.at(i);
    }
    for (const auto& [op, right, since] :
         {std::tuple("ReduceMax", most, 18), std::tuple("ReduceMin", least, 18), std::tuple("ReduceSum", sum, 13)}) {
      const bool as_input = rng.chance(0.5);
      const Attributes attributes = as_input ? Attributes{} : Attributes{{"axes", axes}};
      const Inputs inputs = as_input ? Inputs{x, int64s(axes)} : Inputs{x};
      EXPECT_TRUE(same(run(op, as_input ? since : since - 1, attributes, inputs), floats(kept, right)))
          << op << " case " << index;
      Attributes without = attributes;
      without["keepdims"] = std::int64_t{0};
      Shape dropped;
      for (std::int64_t d = 0; d < rank; ++d)
        if (!reduced.contains(d)) dropped.push_back(shape[static_cast<std::size_t>(d)]);
      EXPECT_TRUE(same(run(op, as_input ? since : since - 1, without, inputs), floats(dropped, right)))
          << op << " case " << index;
    }
  }
}

TEST(ReduceMax, NoAxesMeansAllOrNone) {
  const Tensor x = floats({2, 2}, {1, 2, 3, 6});
  const Attributes noop{{"noop_with_empty_axes", std::int64_t{1}}};
  for (const auto& [op, value, since] :
       {std::tuple("ReduceMax", 6, 18), std::tuple("ReduceMin", 1, 18), std::tuple("ReduceSum", 12, 13)}) {
    EXPECT_TRUE(same(run(op, since, {}, {x}), floats({1, 1}, {static_cast<double>(value)})));
    EXPECT_TRUE(same(run(op, since, {}, {x, int64s({})}), floats({1, 1}, {static_cast<double>(value)})));
    EXPECT_TRUE(same(run(op, since, noop, {x}), x));
    EXPECT_TRUE(same(run(op, since, noop, {x, int64s({})}), x));
    EXPECT_TRUE(same(run(op, since, {}, {floats({}, {3})}), floats({}, {3})));
    EXPECT_NE(refusal(op, since - 1, noop, {x}).find("noop_with_empty_axes"), std::string::npos);
  }
}

TEST(ReduceMax, OfNothing) {
  const Tensor x = floats({2, 0}, {});
  const Attributes last{{"axes", Shape{1}}};
  EXPECT_TRUE(same(run("ReduceMax", 13, last, {x}), floats({2, 1}, {-kInf, -kInf})));
  EXPECT_TRUE(same(run("ReduceMin", 13, last, {x}), floats({2, 1}, {kInf, kInf})));
  EXPECT_TRUE(same(run("ReduceSum", 11, last, {x}), floats({2, 1}, {0, 0})));
  EXPECT_TRUE(same(run("ReduceSum", 11, {{"axes", Shape{0}}}, {x}), floats({1, 0}, {})));
  const auto of_nothing = [](const char* op, DType dtype) {
    return run(op, 20, {}, {Tensor::zeros(dtype, {0})}).int_at(0);
  };
  EXPECT_EQ(of_nothing("ReduceMax", DType::i8), -128);
  EXPECT_EQ(of_nothing("ReduceMin", DType::i8), 127);
  EXPECT_EQ(of_nothing("ReduceMax", DType::i64), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(of_nothing("ReduceMin", DType::u32), 4294967295);
  EXPECT_EQ(of_nothing("ReduceMin", DType::u64), -1);  // 2^64 - 1
  EXPECT_EQ(of_nothing("ReduceMax", DType::boolean), 0);
  EXPECT_EQ(of_nothing("ReduceMin", DType::boolean), 1);
}

TEST(ReduceMax, IntegersAndBool) {
  EXPECT_EQ(run("ReduceMax", 13, {}, {integers(DType::u64, {-1, 5})}).int_at(0), -1);
  EXPECT_EQ(run("ReduceMin", 13, {}, {integers(DType::u64, {-1, 5})}).int_at(0), 5);
  EXPECT_TRUE(
      same(run("ReduceMax", 20, {}, {tensor(DType::boolean, {3}, {0, 1, 0})}), tensor(DType::boolean, {1}, {1})));
  EXPECT_TRUE(
      same(run("ReduceMin", 20, {}, {tensor(DType::boolean, {3}, {1, 1, 0})}), tensor(DType::boolean, {1}, {0})));
}

TEST(ReduceMax, NanIsAConvention) {
  const OneNode node("ReduceMax", 17, {{"axes", Shape{1}}}, {floats({2, 3}, {kNan, 3, 1, 4, kNan, 2})});
  const auto rung = [&](double a, double b) { return judged(node, floats({2, 1}, {a, b})).rung; };
  EXPECT_EQ(rung(kNan, kNan), Rung::exact);
  EXPECT_EQ(rung(3, 4), Rung::convention);
  EXPECT_EQ(rung(3, 2), Rung::convention);     // NaN gives way to the number after it
  EXPECT_EQ(rung(kNan, 4), Rung::convention);  // NaN counts only as the first
  EXPECT_EQ(rung(1, 4), Rung::defect);
}

TEST(ReduceMax, TiesOfTheGradient) {
  const GradientNode node("ReduceMax", {floats({2, 3}, {7, 1, 7, 2, 2, 2}), floats({2, 1}, {1, 3})}, 17,
                          {{"axes", Shape{1}}}, 1);
  EXPECT_TRUE(same(node.run()->front(), floats({2, 3}, {1, 0, 0, 3, 0, 0})));
  const auto verdict = [&](const std::vector<double>& dx) { return judged(node, floats({2, 3}, dx)); };
  EXPECT_EQ(verdict({1, 0, 0, 3, 0, 0}).rung, Rung::exact);
  EXPECT_EQ(verdict({0, 0, 1, 0, 0, 3}).explanation, "the last of equal elements");
  EXPECT_EQ(verdict({0.5, 0, 0.5, 1, 1, 1}).explanation, "an equal share for equal elements");
  EXPECT_EQ(verdict({0.5, 0, 0.5, 0, 3, 0}).rung, Rung::defect);
  EXPECT_EQ(verdict({1, 0, 1, 3, 3, 3}).rung, Rung::defect);
}

TEST(ReduceSum, IntegersWrapAndMeanSharesItsLayout) {
  EXPECT_EQ(run("ReduceSum", 13, {}, {tensor(DType::i32, {2}, {2147483647, 1})}).int_at(0), -2147483648);
  EXPECT_EQ(run("ReduceSum", 13, {}, {tensor(DType::u32, {2}, {4294967295, 2})}).int_at(0), 1);
  const GradientNode node("ReduceSum", {counting({2, 3}), floats({2}, {4, 5})}, 11,
                          {{"axes", Shape{1}}, {"keepdims", std::int64_t{0}}}, 1);
  EXPECT_TRUE(same(node.run()->front(), floats({2, 3}, {4, 4, 4, 5, 5, 5})));
}

TEST(ReduceSum, NamesItsTerms) {
  const OneNode node("ReduceSum", 11, {{"axes", Shape{0}}}, {counting({2, 3})});
  EXPECT_EQ(node.op().reduction(node.call(), 0, 1).a, (std::vector<double>{1, 4}));
}

}  // namespace
}  // namespace opdiff
