// Batch normalisation in training against plain loops in double: output, running statistics, gradients; and the wrong
// formulas that must be found.
#include <cmath>

#include "ops/training_node.h"

namespace opdiff {
namespace {

struct Batch {
  std::int64_t n, c, p;
  Tensor x, scale, shift, mean, variance, dy;
  double epsilon = static_cast<double>(1e-3f), momentum = static_cast<double>(0.75f);

  explicit Batch(Rng& rng) : n(rng.integer(2, 4)), c(rng.integer(1, 3)), p(rng.integer(1, 4)) {
    x = normal(rng, {n, c, p});
    scale = normal(rng, {c});
    shift = normal(rng, {c});
    mean = normal(rng, {c});
    variance = floats({c}, std::vector<double>(static_cast<std::size_t>(c), 4));
    dy = normal(rng, {n, c, p});
  }
  OneNode node(int outputs) const {
    return OneNode("BatchNormalization", 15,
                   {{"training_mode", std::int64_t{1}},
                    {"epsilon", static_cast<float>(epsilon)},
                    {"momentum", static_cast<float>(momentum)}},
                   {x, scale, shift, mean, variance}, outputs);
  }
  double at(const Tensor& t, std::int64_t i, std::int64_t k, std::int64_t j) const { return t.at((i * c + k) * p + j); }
  template <class F>
  double sum(F f) const {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < p; ++j) total += f(i, j);
    return total;
  }
  double batch_mean(std::int64_t k) const {
    return sum([&](auto i, auto j) { return at(x, i, k, j); }) / static_cast<double>(n * p);
  }
  double batch_variance(std::int64_t k) const {
    const double m = batch_mean(k);
    return sum([&](auto i, auto j) { return std::pow(at(x, i, k, j) - m, 2); }) / static_cast<double>(n * p);
  }
};

// In double, of elements of size 1 with variance above epsilon: 2^-53 times a few hundred operations at most.
constexpr double kPlain = 0x1p-40;

void expect_near(const Tensor& got, const std::vector<double>& right, int index) {
  ASSERT_EQ(static_cast<std::size_t>(got.size()), right.size());
  for (std::size_t i = 0; i < right.size(); ++i)
    EXPECT_NEAR(got.at(static_cast<std::int64_t>(i)), right[i], 0x1p-24 * std::fabs(right[i]) + kPlain)
        << "case " << index;
}

TEST(BatchNormalizationTraining, AgreesWithPlainLoops) {
  Rng rng(3, "batch", 0);
  for (int index = 0; index < 100; ++index) {
    const Batch b(rng);
    std::vector<double> y(static_cast<std::size_t>(b.x.size())), mean, variance;
    for (std::int64_t k = 0; k < b.c; ++k) {
      const double m = b.batch_mean(k), v = b.batch_variance(k);
      for (std::int64_t i = 0; i < b.n; ++i)
        for (std::int64_t j = 0; j < b.p; ++j)
          y[static_cast<std::size_t>((i * b.c + k) * b.p + j)] =
              (b.at(b.x, i, k, j) - m) / std::sqrt(v + b.epsilon) * b.scale.at(k) + b.shift.at(k);
      mean.push_back(b.mean.at(k) * b.momentum + m * (1 - b.momentum));
      variance.push_back(b.variance.at(k) * b.momentum + v * (1 - b.momentum));
    }
    const auto outputs = outputs_of(b.node(3));
    expect_near(outputs[0], y, index);
    expect_near(outputs[1], mean, index);
    expect_near(outputs[2], variance, index);
  }
}

TEST(BatchNormalizationTraining, GradientsAgreeWithPlainLoops) {
  Rng rng(4, "batch", 0);
  for (int index = 0; index < 100; ++index) {
    const Batch b(rng);
    const OneNode node = b.node(1);
    Inputs inputs = node.inputs;
    inputs.emplace_back(b.dy);
    OneNode gradient("BatchNormalization", 15, node.node.attributes, inputs, 3);
    gradient.node.domain = kGradientDomain;
    const double count = static_cast<double>(b.n * b.p);
    std::vector<double> dx(static_cast<std::size_t>(b.x.size())), dscale, dshift;
    for (std::int64_t k = 0; k < b.c; ++k) {
      const double m = b.batch_mean(k), r = 1 / std::sqrt(b.batch_variance(k) + b.epsilon);
      const auto normalised = [&](std::int64_t i, std::int64_t j) { return (b.at(b.x, i, k, j) - m) * r; };
      dshift.push_back(b.sum([&](auto i, auto j) { return b.at(b.dy, i, k, j); }));
      dscale.push_back(b.sum([&](auto i, auto j) { return b.at(b.dy, i, k, j) * normalised(i, j); }));
      // Element by element through the Jacobian of the normalisation, not through the closed form.
      for (std::int64_t i = 0; i < b.n; ++i)
        for (std::int64_t j = 0; j < b.p; ++j)
          dx[static_cast<std::size_t>((i * b.c + k) * b.p + j)] =
              b.scale.at(k) * r * b.sum([&](auto other_i, auto other_j) {
                const double same = i == other_i && j == other_j;
                return b.at(b.dy, other_i, k, other_j) *
                       (same - 1 / count - normalised(i, j) * normalised(other_i, other_j) / count);
              });
    }
    const auto outputs = outputs_of(gradient);
    expect_near(outputs[0], dx, index);
    expect_near(outputs[1], dscale, index);
    expect_near(outputs[2], dshift, index);
  }
}

// The wrong formula that is in many a training loop: the batch normalised with the running statistics.
TEST(BatchNormalizationTraining, RunningStatisticsForTheBatchAreADefect) {
  Rng rng(5, "batch", 0);
  for (int index = 0; index < 20; ++index) {
    const Batch b(rng);
    const OneNode node = b.node(3);
    const auto right = outputs_of(node);
    for (const bool updated : {false, true}) {
      std::vector<double> y(static_cast<std::size_t>(b.x.size()));
      for (std::int64_t k = 0; k < b.c; ++k) {
        const double m = updated ? right[1].at(k) : b.mean.at(k), v = updated ? right[2].at(k) : b.variance.at(k);
        for (std::int64_t i = 0; i < b.n; ++i)
          for (std::int64_t j = 0; j < b.p; ++j)
            y[static_cast<std::size_t>((i * b.c + k) * b.p + j)] =
                (b.at(b.x, i, k, j) - m) / std::sqrt(v + b.epsilon) * b.scale.at(k) + b.shift.at(k);
      }
      EXPECT_EQ(judged(node, 0, tensor(DType::f32, b.x.shape(), y)).rung, Rung::defect) << index;
    }
    EXPECT_LE(judged(node, 0, right[0]).rung, Rung::rounding);
  }
}

TEST(BatchNormalizationTraining, TheUnbiasedRunningVarianceHasAName) {
  Rng rng(6, "batch", 0);
  for (int index = 0; index < 20; ++index) {
    const Batch b(rng);
    const OneNode node = b.node(3);
    const double count = static_cast<double>(b.n * b.p);
    std::vector<double> unbiased, wrong;
    for (std::int64_t k = 0; k < b.c; ++k) {
      const double v = b.batch_variance(k) * count / (count - 1);
      unbiased.push_back(b.variance.at(k) * b.momentum + v * (1 - b.momentum));
      wrong.push_back(b.variance.at(k) * (1 - b.momentum) + v * b.momentum);  // torch's momentum taken for ONNX's
    }
    const Verdict v = judged(node, 2, floats({b.c}, unbiased));
    EXPECT_EQ(v.rung, Rung::algorithm);
    EXPECT_EQ(v.explanation, "unbiased running variance");
    EXPECT_EQ(judged(node, 2, floats({b.c}, wrong)).rung, Rung::defect);
  }
}

// A mean of 1000 standard deviations costs the one-pass formula 20 of f32's 24 digits.
TEST(BatchNormalizationTraining, TheOnePassVarianceHasAName) {
  Rng rng(7, "batch", 0);
  const Shape shape{64, 1};
  std::vector<double> x(64);
  for (double& v : x) v = static_cast<double>(static_cast<float>(100 + rng.normal()));
  const Tensor one = floats({1}, {1}), zero = floats({1}, {0});
  const OneNode node("BatchNormalization", 15, {{"training_mode", std::int64_t{1}}},
                     {floats(shape, x), one, zero, zero, one});
  float sum = 0, squares = 0;
  for (const double v : x) {
    sum += static_cast<float>(v);
    squares += static_cast<float>(v) * static_cast<float>(v);
  }
  const float mean = sum / 64, variance = squares / 64 - mean * mean;
  const float reciprocal = 1 / std::sqrt(variance + 1e-5f);
  std::vector<double> y(64);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<double>((static_cast<float>(x[i]) - mean) * reciprocal);
  const Verdict v = judged(node, 0, floats(shape, y));
  EXPECT_EQ(v.rung, Rung::algorithm) << to_string(v.rung) << " " << v.explanation;
  EXPECT_EQ(v.explanation, "one-pass variance");
}

TEST(DropoutTraining, KeptElementsAreScaledAndTheMaskIsTakenAsGiven) {
  const Tensor x = floats({4}, {1, 2, 3, 4}), ratio = floats({}, {0.75}), yes = tensor(DType::boolean, {}, {1});
  const OneNode node("Dropout", 13, {}, {x, ratio, yes}, 2);
  const auto judge = [&](const std::vector<double>& y, const std::vector<double>& mask) {
    const Tensor got_y = floats({4}, y), got_mask = tensor(DType::boolean, {4}, mask);
    const Tensor* got[] = {&got_y, &got_mask};
    return judge_node(node.node, 13, node.pointers, got);
  };
  auto verdicts = judge({4, 0, 0, 16}, {1, 0, 0, 1});
  EXPECT_EQ(verdicts[0].rung, Rung::exact);
  EXPECT_EQ(verdicts[1].rung, Rung::exact);
  EXPECT_EQ(judge({4, 0, 0, 4}, {1, 0, 0, 1})[0].rung, Rung::defect);   // not scaled
  EXPECT_EQ(judge({4, 8, 0, 16}, {1, 0, 0, 1})[0].rung, Rung::defect);  // kept against its mask
  // A backend without a mask shows it.
  EXPECT_EQ(judged(OneNode("Dropout", 13, {}, {x, ratio, yes}), 0, floats({4}, {0, 8, 0, 0})).rung, Rung::exact);
  EXPECT_EQ(judged(OneNode("Dropout", 13, {}, {x, ratio, yes}), 0, floats({4}, {0, 7, 0, 0})).rung, Rung::defect);
}

TEST(DropoutTraining, TheMaskIsHeldAgainstItsOdds) {
  Rng rng(8, "dropout", 0);
  const std::int64_t n = 1000;
  const Tensor x = Tensor::from_doubles(DType::f32, {n}, std::vector<double>(static_cast<std::size_t>(n), 1));
  const OneNode node("Dropout", 13, {}, {x, floats({}, {0.3}), tensor(DType::boolean, {}, {1})}, 2);
  const auto rung = [&](double kept) {
    std::vector<double> mask(static_cast<std::size_t>(n));
    for (double& m : mask) m = rng.chance(kept);
    return judged(node, 1, tensor(DType::boolean, {n}, mask)).rung;
  };
  EXPECT_EQ(rung(0.7), Rung::exact);
  EXPECT_EQ(rung(0.3), Rung::unlikely);  // the ratio taken for the share that stays
  EXPECT_EQ(rung(0.5), Rung::unlikely);
  const OneNode all("Dropout", 13, {}, {x, floats({}, {0}), tensor(DType::boolean, {}, {1})}, 2);
  std::vector<double> mask(static_cast<std::size_t>(n), 1);
  mask[17] = 0;
  EXPECT_EQ(judged(all, 1, tensor(DType::boolean, {n}, mask)).rung, Rung::defect);  // ratio 0 drops nothing
}

TEST(DropoutTraining, TheGradientFollowsTheMaskThatIsGiven) {
  const Tensor x = floats({3}, {1, 2, 3}), dy = floats({3}, {1, 1, -2}), mask = tensor(DType::boolean, {3}, {1, 0, 1});
  OneNode node("Dropout", 13, {}, {x, floats({}, {0.5}), tensor(DType::boolean, {}, {1}), mask, dy});
  node.node.domain = kGradientDomain;
  EXPECT_TRUE(same(outputs_of(node)[0], floats({3}, {2, 0, -4})));
  OneNode without("Dropout", 13, {}, {x, floats({}, {0.5}), tensor(DType::boolean, {}, {1}), dy});
  without.node.domain = kGradientDomain;
  EXPECT_FALSE(without.run().has_value());
}

}  // namespace
}  // namespace opdiff
