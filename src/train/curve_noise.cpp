#include "train/curve_noise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/format.h"
#include "base/rng.h"

namespace opdiff {
namespace {

constexpr double kUnitsOfRoundoff = 2;
constexpr double kMostRms = 3, kMost = 10;  // times the noise, as of a floor (docs/numerics.md, section 6)
constexpr std::array kNames = {"training loss", "test loss", "test accuracy"};

// A value of each, in the order of kNames, at each of these steps, after which there was a test.
using Figures = std::array<std::vector<double>, kNames.size()>;

Figures figures_of(const Curves& curves, const std::vector<std::int64_t>& steps) {
  Figures figures;
  std::int64_t from = 0;
  for (const std::int64_t step : steps) {
    double loss = 0;
    for (std::int64_t i = from; i < step; ++i) loss += curves.steps[static_cast<std::size_t>(i)].loss;
    figures[0].push_back(loss / static_cast<double>(step - from));
    from = step;
    const TestPoint& test = *std::find_if(curves.tests.begin(), curves.tests.end(),
                                          [&](const TestPoint& point) { return point.step == step; });
    figures[1].push_back(test.loss);
    if (test.right >= 0) figures[2].push_back(static_cast<double>(test.right) / static_cast<double>(test.rows));
  }
  return figures;
}

// Steps after which all of them were tested, in order. A training that was interrupted has tests of its own.
std::vector<std::int64_t> common_steps(const std::vector<const Curves*>& trainings) {
  std::map<std::int64_t, std::size_t> count;
  for (const Curves* curves : trainings) {
    std::set<std::int64_t> own;
    for (const TestPoint& test : curves->tests)
      if (test.step > 0 && test.step <= static_cast<std::int64_t>(curves->steps.size())) own.insert(test.step);
    for (const std::int64_t step : own) ++count[step];
  }
  std::vector<std::int64_t> steps;
  for (const auto& [step, n] : count)
    if (n == trainings.size()) steps.push_back(step);
  return steps;
}

}  // namespace

TensorMap off_by_a_rounding(const TensorMap& state, std::uint64_t seed) {
  TensorMap result = state;
  for (auto& [name, tensor] : result) {
    if (!is_float(tensor.dtype())) continue;
    Rng rng(seed, "off by a rounding: " + name, 0);
    std::vector<double> values = tensor.to_doubles();
    const double width = kUnitsOfRoundoff * format_of(tensor.dtype()).unit_roundoff();
    for (double& value : values) value *= 1 + rng.uniform(-width, width);
    tensor = Tensor::from_doubles(tensor.dtype(), tensor.shape(), values);
  }
  return result;
}

Expected<CurveReading> read_curves(const Curves& curves, const Curves& base, std::span<const Curves> noisy) {
  if (noisy.size() < 2) return make_error("the noise of curves needs two more trainings at least");
  std::vector<const Curves*> all = {&curves, &base};
  for (const Curves& other : noisy) all.push_back(&other);
  const std::vector<std::int64_t> steps = common_steps(all);
  if (steps.empty()) return make_error("no step after which all of the trainings were tested");
  const Figures own = figures_of(curves, steps), right = figures_of(base, steps);
  std::vector<Figures> others;
  for (const Curves& other : noisy) others.push_back(figures_of(other, steps));
  CurveReading reading;
  for (std::size_t k = 0; k < kNames.size(); ++k) {
    std::size_t epochs = std::min(own[k].size(), right[k].size());
    for (const Figures& other : others) epochs = std::min(epochs, other[k].size());
    if (epochs == 0) continue;
    std::vector<double> noise;
    for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
      double squares = 0;
      for (const Figures& other : others) squares += std::pow(other[k][epoch] - right[k][epoch], 2);
      noise.push_back(std::sqrt(squares / static_cast<double>(others.size())));
    }
    std::vector<double> sorted = noise;
    std::sort(sorted.begin(), sorted.end());
    for (double& s : noise) s = std::max(s, sorted[sorted.size() / 2]);
    double squares = 0, max = 0;
    for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
      const double off = std::fabs(own[k][epoch] - right[k][epoch]);
      const double distance = off == 0 ? 0 : noise[epoch] > 0 && std::isfinite(off) ? off / noise[epoch] : HUGE_VAL;
      squares += distance * distance;
      max = std::max(max, distance);
    }
    const double rms = std::sqrt(squares / static_cast<double>(epochs));
    reading.inside &= rms <= kMostRms && max <= kMost;
    if (reading.worst.empty() || rms > reading.rms) {
      reading.rms = rms;
      reading.worst = kNames[k];
    }
    reading.max = std::max(reading.max, max);
  }
  return reading;
}

}  // namespace opdiff
