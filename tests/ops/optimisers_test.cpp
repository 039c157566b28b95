// Steps of the optimisers against hand-computed numbers and plain loops in double; wrong steps that must be found.
#include <cmath>

#include "ops/training_node.h"

namespace opdiff {
namespace {

Tensor rate(double value) { return floats({}, {value}); }
Tensor steps(std::int64_t value) { return SampleContext::scalar_int64(value); }

TEST(SGD, HandComputed) {
  const Tensor x = floats({2}, {1, -2}), g = floats({2}, {0.5, 4});
  EXPECT_TRUE(same(outputs_of(TrainingNode("SGD", {}, {rate(0.5), steps(3), x, g}))[0], floats({2}, {0.75, -4})));
  // Weight decay enters the gradient: 0.5 + 0.5 * 1, 4 + 0.5 * -2.
  EXPECT_TRUE(same(outputs_of(TrainingNode("SGD", {{"weight_decay", 0.5f}}, {rate(0.5), steps(0), x, g}))[0],
                   floats({2}, {0.5, -3.5})));
}

TEST(SGD, TheFirstStepCopiesTheGradient) {
  const Tensor x = floats({1}, {1}), g = floats({1}, {2}), v = floats({1}, {8});
  const Attributes attributes{{"momentum", 0.5f}, {"dampening", 0.5f}};
  auto first = outputs_of(TrainingNode("SGD", attributes, {rate(0.25), steps(0), x, g, v}, 2));
  EXPECT_TRUE(same(first[1], floats({1}, {2})));  // neither the old buffer nor the dampening
  EXPECT_TRUE(same(first[0], floats({1}, {0.5})));
  auto second = outputs_of(TrainingNode("SGD", attributes, {rate(0.25), steps(1), x, g, v}, 2));
  EXPECT_TRUE(same(second[1], floats({1}, {5})));
  EXPECT_TRUE(same(second[0], floats({1}, {-0.25})));
  Attributes dampened = attributes;
  dampened["first_step"] = std::string("dampened");
  auto other =
      outputs_of(TrainingNode("SGD", dampened, {rate(0.25), steps(0), x, g, Tensor::zeros(DType::f32, {1})}, 2));
  EXPECT_TRUE(same(other[1], floats({1}, {1})));
}

TEST(SGD, NesterovLooksAhead) {
  const Tensor x = floats({1}, {1}), g = floats({1}, {2}), v = floats({1}, {8});
  auto y = outputs_of(
      TrainingNode("SGD", {{"momentum", 0.5f}, {"nesterov", std::int64_t{1}}}, {rate(0.25), steps(1), x, g, v}, 2));
  EXPECT_TRUE(same(y[1], floats({1}, {6})));
  EXPECT_TRUE(same(y[0], floats({1}, {1 - 0.25 * (2 + 0.5 * 6)})));
}

// tests/cases/pt-fused-sgd-lowp-noop: whole vectors of 32 are left as they were.
TEST(SGD, AStepThatIsNotTakenIsADefect) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    std::vector<double> x(33), ones(33, 1);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<double>(i) / 32;
    const Tensor parameter = tensor(dtype, {33}, x);
    const TrainingNode node("SGD", {}, {rate(0.1), steps(0), parameter, tensor(dtype, {33}, ones)});
    const Tensor right = outputs_of(node)[0];
    EXPECT_LE(judged(node, 0, right).rung, Rung::rounding);
    std::vector<double> got = parameter.to_doubles();
    got[32] = right.at(32);
    EXPECT_EQ(judged(node, 0, tensor(dtype, {33}, got)).rung, Rung::defect);
  }
}

struct AdamCase {
  double rate, beta1, beta2, epsilon, decay;
  bool decoupled, amsgrad;
  std::string place;
  std::int64_t before;
};

TEST(Adam, AgreesWithAPlainLoop) {
  Rng rng(2, "adam", 0);
  for (int index = 0; index < 200; ++index) {
    const char* places[] = {"outside", "inside", "uncorrected"};
    const auto as_float = [](double v) { return static_cast<double>(static_cast<float>(v)); };
    const AdamCase c{as_float(rng.uniform(0.001, 0.5)),
                     as_float(0.9),
                     as_float(0.99),
                     as_float(1e-3),
                     as_float(rng.chance(0.5) ? 0 : 0.1),
                     rng.chance(0.5),
                     rng.chance(0.5),
                     rng.pick(places),
                     rng.integer(0, 50)};
    const Shape shape{5};
    const Tensor x = normal(rng, shape), g = normal(rng, shape), m = normal(rng, shape);
    std::vector<double> v(5), w(5);
    for (std::size_t i = 0; i < 5; ++i) {
      v[i] = rng.uniform(0.1, 2);
      w[i] = rng.uniform(0.1, 2);
    }
    Inputs inputs{rate(c.rate), steps(c.before), x, g, m, floats(shape, v)};
    if (c.amsgrad) inputs.emplace_back(floats(shape, w));
    const TrainingNode node("Adam",
                            {{"beta1", static_cast<float>(c.beta1)},
                             {"beta2", static_cast<float>(c.beta2)},
                             {"epsilon", static_cast<float>(c.epsilon)},
                             {"weight_decay", static_cast<float>(c.decay)},
                             {"decoupled", std::int64_t{c.decoupled}},
                             {"amsgrad", std::int64_t{c.amsgrad}},
                             {"epsilon_place", c.place}},
                            inputs, c.amsgrad ? 4 : 3);
    const auto outputs = outputs_of(node);
    std::vector<double> right(5), right_m(5), right_v(5), right_w(5);
    const double n = static_cast<double>(c.before + 1);
    const double first = 1 - std::pow(c.beta1, n), second = 1 - std::pow(c.beta2, n);
    for (std::size_t i = 0; i < 5; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      double start = x.at(at), gradient = g.at(at);
      if (c.decoupled)
        start *= 1 - c.rate * c.decay;
      else
        gradient += c.decay * start;
      right_m[i] = c.beta1 * m.at(at) + (1 - c.beta1) * gradient;
      right_v[i] = c.beta2 * inputs[5]->at(at) + (1 - c.beta2) * gradient * gradient;
      right_w[i] = c.amsgrad ? std::max(inputs[6]->at(at), right_v[i]) : right_v[i];
      const double mean = right_m[i] / first, squares = right_w[i] / second;
      const double divisor = c.place == "outside"  ? std::sqrt(squares) + c.epsilon
                             : c.place == "inside" ? std::sqrt(squares + c.epsilon)
                                                   : (std::sqrt(right_w[i]) + c.epsilon) / std::sqrt(second);
      right[i] = start - c.rate * mean / divisor;
    }
    EXPECT_TRUE(rounds_to(outputs[0], right)) << "case " << index;
    EXPECT_TRUE(rounds_to(outputs[1], right_m)) << "case " << index;
    EXPECT_TRUE(rounds_to(outputs[2], right_v)) << "case " << index;
    if (c.amsgrad) {
      EXPECT_TRUE(rounds_to(outputs[3], right_w)) << "case " << index;
    }
  }
}

TEST(Adam, TheFirstStepIsTheRateTimesTheSign) {
  const Tensor x = floats({2}, {1, 1}), g = floats({2}, {0.5, -3}), zero = Tensor::zeros(DType::f32, {2});
  const Tensor y =
      outputs_of(TrainingNode("Adam", {{"epsilon", 0.0f}}, {rate(0.25), steps(0), x, g, zero, zero}, 3))[0];
  EXPECT_TRUE(same(y, floats({2}, {0.75, 1.25})));
}

// A gradient as small as epsilon tells the places apart (shared/defects/fa-adam-epsilon): both are right, each under
// its own name.
TEST(Adam, PlacesOfEpsilonAreToldApart) {
  const Tensor x = floats({1}, {0}), g = floats({1}, {1e-9}), zero = Tensor::zeros(DType::f32, {1});
  const Inputs inputs{rate(0.001), steps(0), x, g, zero, zero};
  const TrainingNode outside("Adam", {}, inputs, 3),
      uncorrected("Adam", {{"epsilon_place", std::string("uncorrected")}}, inputs, 3);
  const Tensor a = outputs_of(outside)[0], b = outputs_of(uncorrected)[0];
  EXPECT_LE(judged(outside, 0, a).rung, Rung::rounding);
  EXPECT_LE(judged(uncorrected, 0, b).rung, Rung::rounding);
  EXPECT_EQ(judged(outside, 0, b).rung, Rung::defect);
  EXPECT_EQ(judged(uncorrected, 0, a).rung, Rung::defect);
}

TEST(Adam, MissingBiasCorrectionAndCoupledDecayAreDefects) {
  const Tensor x = floats({3}, {1, 2, -1}), g = floats({3}, {0.5, -0.25, 1}), zero = Tensor::zeros(DType::f32, {3});
  const TrainingNode node("Adam", {{"decoupled", std::int64_t{1}}, {"weight_decay", 0.1f}},
                          {rate(0.1), steps(0), x, g, zero, zero}, 3);
  std::vector<double> uncorrected(3);
  for (std::size_t i = 0; i < 3; ++i) {
    const double gradient = g.at(static_cast<std::int64_t>(i));
    uncorrected[i] = x.at(static_cast<std::int64_t>(i)) * (1 - 0.01) -
                     0.1 * 0.1 * gradient / (std::sqrt(0.001 * gradient * gradient) + 1e-8);
  }
  EXPECT_EQ(judged(node, 0, floats({3}, uncorrected)).rung, Rung::defect);
  const TrainingNode coupled("Adam", {{"weight_decay", 0.1f}}, {rate(0.1), steps(0), x, g, zero, zero}, 3);
  EXPECT_EQ(judged(node, 0, outputs_of(coupled)[0]).rung, Rung::defect);
}

TEST(RMSprop, HandComputed) {
  const Tensor x = floats({1}, {1}), g = floats({1}, {2}), s = floats({1}, {4});
  const Attributes half{{"alpha", 0.5f}, {"epsilon", 2.0f}};
  auto y = outputs_of(TrainingNode("RMSprop", half, {rate(1), steps(0), x, g, s}, 2));
  EXPECT_TRUE(same(y[1], floats({1}, {4})));
  EXPECT_TRUE(same(y[0], floats({1}, {1 - 2.0 / (2 + 2)})));
  Attributes inside = half;
  inside["epsilon_place"] = std::string("inside");
  inside["epsilon"] = 5.0f;
  EXPECT_TRUE(
      rounds_to(outputs_of(TrainingNode("RMSprop", inside, {rate(1), steps(0), x, g, s}, 2))[0], {1 - 2.0 / 3}));
  // Centered: mean (2 + 2) / 2 = 2... from 0 it is 1, and 4 - 1 are left under the root.
  Attributes centered = half;
  centered["centered"] = std::int64_t{1};
  centered["momentum"] = 0.5f;
  const Tensor v = floats({1}, {3}), a = floats({1}, {0});
  y = outputs_of(TrainingNode("RMSprop", centered, {rate(1), steps(0), x, g, s, v, a}, 4));
  const double d = 2 / (std::sqrt(3.0) + 2);
  EXPECT_TRUE(same(y[3], floats({1}, {1})));
  EXPECT_TRUE(rounds_to(y[2], {1.5 + d}));
  EXPECT_TRUE(rounds_to(y[0], {1 - (1.5 + d)}));
}

TEST(Adagrad, HandComputed) {
  const Tensor x = floats({1}, {1}), g = floats({1}, {3}), h = floats({1}, {16});
  const auto y =
      outputs_of(TrainingNode("Adagrad", {{"lr_decay", 0.5f}, {"epsilon", 1.0f}}, {rate(1), steps(2), x, g, h}, 2));
  EXPECT_TRUE(same(y[1], floats({1}, {25})));
  EXPECT_TRUE(same(y[0], floats({1}, {1 - 1.0 / 2 * 3 / (5 + 1)})));
}

TEST(ClipGradientNorm, ScalesTogetherOrNotAtAll) {
  const Tensor a = floats({2}, {3, 0}), b = floats({1}, {4});
  auto y = outputs_of(TrainingNode("ClipGradientNorm", {{"max_norm", 2.5f}, {"epsilon", 0.0f}}, {a, b}, 3));
  EXPECT_TRUE(same(y[0], floats({2}, {1.5, 0})));
  EXPECT_TRUE(same(y[1], floats({1}, {2})));
  EXPECT_TRUE(same(y[2], floats({}, {5})));
  const TrainingNode small("ClipGradientNorm", {{"max_norm", 6.0f}}, {a, b}, 3);
  y = outputs_of(small);
  EXPECT_TRUE(same(y[0], a));
  EXPECT_TRUE(same(y[1], b));
  // Nothing is rounded where nothing is clipped.
  EXPECT_EQ(judged(small, 1, floats({1}, {4 + 0x1p-21})).rung, Rung::defect);
}

TEST(Optimisers, StatesThatTheAttributesDoNotAskForAreRefused) {
  const Tensor x = floats({1}, {1});
  const TrainingNode node("SGD", {}, {rate(1), steps(0), x, x, x});
  const auto outputs = node.run();
  ASSERT_FALSE(outputs.has_value());
  EXPECT_NE(outputs.error().message.find("'V'"), std::string::npos) << outputs.error().message;
}

}  // namespace
}  // namespace opdiff
