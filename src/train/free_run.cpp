#include "train/free_run.h"

#include <cmath>

#include "numerics/parallel.h"
#include "reference/noise.h"

namespace opdiff {
namespace {

double sum_of_squares(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double sum = 0;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sum;
}

TensorMap with(TensorMap inputs, const TensorMap& state) {
  for (const auto& [name, tensor] : state) inputs[name] = tensor;
  return inputs;
}

void carry_on(const StepGraph& step, const TensorMap& outputs, TensorMap* state) {
  for (const auto& [name, next] : step.next) (*state)[name] = outputs.at(next);
}

}  // namespace

FreeRun::FreeRun(const TensorMap& state, std::uint64_t seed)
    : exact_(state), noisy_(kNoisyTrainings, state), seed_(seed) {}

Expected<DriftPoint> FreeRun::advance(const StepGraph& step, std::int64_t number, const TensorMap& inputs,
                                      const TensorMap& own) {
  const Graph& graph = step.training.graph;
  TensorMap outputs;
  OPDIFF_TRY(const NodeNoise noise, NodeNoise::measure(graph, with(inputs, exact_), &outputs));
  std::vector<Expected<TensorMap>> noisy(noisy_.size(), TensorMap());
  parallel_for(static_cast<std::int64_t>(noisy.size()), [&](std::int64_t k) {
    const auto place = static_cast<std::size_t>(k);
    Rng rng(seed_ + static_cast<std::uint64_t>(k), "noisy training", static_cast<std::uint64_t>(number));
    noisy[place] = noise.evaluate(graph, with(inputs, noisy_[place]), rng);
  });
  carry_on(step, outputs, &exact_);
  for (std::size_t k = 0; k < noisy.size(); ++k) {
    if (!noisy[k]) return tl::unexpected<Error>(noisy[k].error());
    carry_on(step, *noisy[k], &noisy_[k]);
  }
  DriftPoint point;
  point.step = number;
  point.loss = own.at(kLoss).at(0);
  point.reference_loss = outputs.at(kLoss).at(0);
  for (const auto& [name, next] : step.next) {
    double floor = 0;
    for (const TensorMap& state : noisy_) floor += sum_of_squares(state.at(name), exact_.at(name));
    const double distance = sum_of_squares(own.at(next), exact_.at(name));
    if (floor == 0) continue;  // nothing rounds into it yet
    const double drift = std::sqrt(distance / (floor / static_cast<double>(noisy_.size())));
    if (drift > point.drift) {
      point.drift = drift;
      point.tensor = name;
    }
  }
  return point;
}

}  // namespace opdiff
