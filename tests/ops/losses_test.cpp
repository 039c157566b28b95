// Losses against hand-computed numbers and plain loops in double.
#include <cmath>

#include "ops/training_node.h"

namespace opdiff {
namespace {

struct ClassCase {
  Shape shape;  // [N, C, ...]
  Tensor scores, labels;
  std::optional<Tensor> weights;
  std::int64_t ignored;
};

ClassCase draw(Rng& rng) {
  const std::int64_t classes = rng.integer(1, 6);
  const Shape shape{rng.integer(1, 4), classes, rng.integer(1, 3)}, rows{shape[0], shape[2]};
  std::vector<std::int64_t> labels(static_cast<std::size_t>(shape[0] * shape[2]));
  const std::int64_t ignored = rng.chance(0.5) ? -1 : 0;
  for (auto& label : labels) label = rng.chance(0.3) ? ignored : rng.integer(0, classes - 1);
  ClassCase c{shape, normal(rng, shape), Tensor::from_int64s(DType::i64, rows, labels), std::nullopt, ignored};
  if (rng.chance(0.6)) {
    std::vector<double> w(static_cast<std::size_t>(classes));
    for (double& v : w) v = rng.uniform(0.5, 2);
    c.weights = floats({classes}, w);
  }
  return c;
}

// The definition, row by row: losses (zero where ignored), or their sum or mean.
std::vector<double> plain(const ClassCase& c, bool takes_logarithms, double smoothing, const std::string& reduction) {
  const std::int64_t classes = c.shape[1], positions = c.shape[2];
  std::vector<double> losses;
  double total = 0, sum = 0;
  for (std::int64_t n = 0; n < c.shape[0]; ++n)
    for (std::int64_t p = 0; p < positions; ++p) {
      const auto x = [&](std::int64_t k) { return c.scores.at((n * classes + k) * positions + p); };
      const auto w = [&](std::int64_t k) { return c.weights ? c.weights->at(k) : 1.0; };
      double exponentials = 0;
      for (std::int64_t k = 0; k < classes; ++k) exponentials += std::exp(x(k));
      const auto log_prob = [&](std::int64_t k) { return takes_logarithms ? x(k) - std::log(exponentials) : x(k); };
      const std::int64_t label = c.labels.int_at(n * positions + p);
      double loss = 0;
      if (label != c.ignored) {
        loss = -(1 - smoothing) * w(label) * log_prob(label);
        for (std::int64_t k = 0; k < classes; ++k)
          loss -= smoothing / static_cast<double>(classes) * w(k) * log_prob(k);
        total += w(label);
      }
      losses.push_back(loss);
      sum += loss;
    }
  if (reduction == "none") return losses;
  return {reduction == "sum" ? sum : sum / total};
}

Inputs inputs_of(const ClassCase& c) {
  Inputs inputs{c.scores, c.labels};
  if (c.weights) inputs.emplace_back(*c.weights);
  return inputs;
}

TEST(ClassLosses, AgreeWithPlainLoops) {
  Rng rng(1, "class losses", 0);
  for (int index = 0; index < 200; ++index) {
    const ClassCase c = draw(rng);
    for (const char* reduction : {"none", "sum", "mean"}) {
      const Attributes attributes{{"ignore_index", c.ignored}, {"reduction", std::string(reduction)}};
      const auto check = [&](const OneNode& node, double smoothing, bool takes_logarithms) {
        const std::vector<double> right = plain(c, takes_logarithms, smoothing, reduction);
        const Tensor got = outputs_of(node)[0];
        ASSERT_EQ(static_cast<std::size_t>(got.size()), right.size());
        for (std::size_t i = 0; i < right.size(); ++i) {
          const double y = got.at(static_cast<std::int64_t>(i));
          if (std::isnan(right[i]))
            EXPECT_TRUE(std::isnan(y));
          else  // terms may cancel in the sum: of 2^4 rows of size 2^4 the plain loop has lost 2^-53 * 2^8 at most
            EXPECT_NEAR(y, right[i], 0x1p-24 * std::fabs(right[i]) + 0x1p-45) << node.node.op << " case " << index;
        }
      };
      check(OneNode("SoftmaxCrossEntropyLoss", 13, attributes, inputs_of(c)), 0, true);
      check(OneNode("NegativeLogLikelihoodLoss", 13, attributes, inputs_of(c)), 0, false);
      for (const float smoothing : {0.0f, 0.125f, 1.0f}) {
        Attributes smooth = attributes;
        smooth["label_smoothing"] = smoothing;
        check(TrainingNode("CrossEntropyLoss", smooth, inputs_of(c)), smoothing, true);
      }
    }
  }
}

TEST(SoftmaxCrossEntropyLoss, HandComputed) {
  // Probabilities 1/4 and 3/4.
  const Tensor scores = tensor(DType::f64, {1, 2}, {0, std::log(3)}), label = int64s({1});
  const OneNode node("SoftmaxCrossEntropyLoss", 13, {}, {scores, label}, 2);
  const auto outputs = outputs_of(node);
  EXPECT_NEAR(outputs[0].at(0), std::log(4.0 / 3), 0x1p-52);
  EXPECT_NEAR(outputs[1].at(0), -std::log(4.0), 0x1p-52);
  EXPECT_EQ(outputs[0].shape(), Shape{});
  EXPECT_EQ(outputs[1].shape(), (Shape{1, 2}));
}

TEST(SoftmaxCrossEntropyLoss, MeanDividesByTheWeightsThatWereUsed) {
  const Tensor scores = floats({3, 2}, {0, 0, 0, 0, 0, 0}), weights = floats({2}, {2, 6});
  const Tensor labels = int64s({0, 1, -1});
  // (2 log 2 + 6 log 2) / (2 + 6).
  EXPECT_TRUE(
      rounds_to(run("SoftmaxCrossEntropyLoss", 13, {{"ignore_index", std::int64_t{-1}}}, {scores, labels, weights}),
                {std::log(2)}));
  // Nothing counts: 0 / 0.
  EXPECT_TRUE(std::isnan(
      run("SoftmaxCrossEntropyLoss", 13, {{"ignore_index", std::int64_t{-1}}}, {scores, int64s({-1, -1, -1}), weights})
          .at(0)));
}

TEST(SoftmaxCrossEntropyLoss, GradientIsSoftmaxMinusOneHot) {
  const Tensor scores = tensor(DType::f64, {1, 2}, {0, std::log(3)}), label = int64s({1});
  OneNode node("SoftmaxCrossEntropyLoss", 13, {}, {scores, label, std::nullopt, tensor(DType::f64, {}, {2})});
  node.node.domain = kGradientDomain;
  const Tensor dx = outputs_of(node)[0];
  EXPECT_NEAR(dx.at(0), 2 * 0.25, 0x1p-52);
  EXPECT_NEAR(dx.at(1), 2 * -0.25, 0x1p-52);
}

TEST(ClassLosses, LabelsOutOfRangeAreNamed) {
  const Tensor scores = Tensor::zeros(DType::f32, {2, 3});
  for (const char* op : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    EXPECT_NE(refusal(op, 13, {}, {scores, int64s({0, 3})}).find("label [1] is 3"), std::string::npos);
    EXPECT_NE(refusal(op, 13, {}, {scores, int64s({-1, 0})}).find("label [0] is -1"), std::string::npos);
    EXPECT_EQ(refusal(op, 13, {{"ignore_index", std::int64_t{-1}}}, {scores, int64s({-1, 0})}), "accepted");
    // Types alone are accepted: the labels are checked once they are there.
    EXPECT_TRUE(OneNode(op, 13, {}, {scores, int64s({0, 3})}).infer({}).has_value());
  }
}

TEST(ElementwiseLosses, HandComputed) {
  const Tensor x = floats({4}, {1, -2, 0.5, 3}), t = floats({4}, {0, -2, 1, -1});
  const auto loss = [&](const std::string& op, Attributes attributes, const std::string& reduction) {
    attributes["reduction"] = reduction;
    return outputs_of(TrainingNode(op, attributes, {x, t}))[0];
  };
  EXPECT_TRUE(same(loss("MSELoss", {}, "none"), floats({4}, {1, 0, 0.25, 16})));
  EXPECT_TRUE(same(loss("MSELoss", {}, "mean"), floats({}, {17.25 / 4})));
  EXPECT_TRUE(same(loss("L1Loss", {}, "none"), floats({4}, {1, 0, 0.5, 4})));
  EXPECT_TRUE(same(loss("L1Loss", {}, "sum"), floats({}, {5.5})));
  EXPECT_TRUE(same(loss("HuberLoss", {}, "none"), floats({4}, {0.5, 0, 0.125, 3.5})));
  EXPECT_TRUE(same(loss("HuberLoss", {{"delta", 0.5f}}, "none"), floats({4}, {0.375, 0, 0.125, 1.875})));
}

TEST(BCEWithLogitsLoss, BothTailsAndPositiveWeights) {
  const Tensor x = floats({5}, {0, 30, -30, 200, -200}), t = floats({5}, {0.5, 1, 0, 0, 1}), w = floats({1}, {3});
  const std::vector<double> right{std::log(2), std::log1p(std::exp(-30)), std::log1p(std::exp(-30)), 200, 200};
  EXPECT_TRUE(
      rounds_to(outputs_of(TrainingNode("BCEWithLogitsLoss", {{"reduction", std::string("none")}}, {x, t}))[0], right));
  // -3 t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)).
  EXPECT_TRUE(
      rounds_to(outputs_of(TrainingNode("BCEWithLogitsLoss", {{"reduction", std::string("none")}}, {x, t, w}))[0],
                {2 * std::log(2), 3 * right[1], right[2], 200, 600}));
}

TEST(BCEWithLogitsLoss, AnOverflowingFormIsADefect) {
  const TrainingNode node("BCEWithLogitsLoss", {{"reduction", std::string("none")}},
                          {floats({1}, {200}), floats({1}, {0})});
  EXPECT_EQ(judged(node, 0, floats({1}, {std::numeric_limits<double>::infinity()})).rung, Rung::defect);
  EXPECT_EQ(judged(node, 0, floats({1}, {200})).rung, Rung::exact);
}

TEST(L1Loss, SlopesAtTheKinkAreConventions) {
  TrainingNode node("L1Loss", {{"reduction", std::string("sum")}},
                    {floats({2}, {1, 2}), floats({2}, {1, 0}), floats({}, {4})});
  node.node.domain = kGradientDomain;
  EXPECT_EQ(judged(node, 0, floats({2}, {0, 4})).rung, Rung::exact);
  EXPECT_EQ(judged(node, 0, floats({2}, {4, 4})).rung, Rung::convention);
  EXPECT_EQ(judged(node, 0, floats({2}, {-4, 4})).rung, Rung::convention);
  EXPECT_EQ(judged(node, 0, floats({2}, {8, 4})).rung, Rung::defect);
}

}  // namespace
}  // namespace opdiff
