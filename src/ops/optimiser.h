// What the optimisers have in common: one step on one parameter. Inputs R (learning rate), T (steps done before this
// one), X (parameter), G (gradient), then the states; outputs the new X, then the new states. Scalars of a step
// (1 - beta, bias corrections) are worked out in double by most implementations and rounded once.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "ops/op.h"
#include "ops/rounded_scalar.h"

namespace opdiff {

inline constexpr double kMost = std::numeric_limits<double>::infinity();
inline constexpr int kRate = 0, kSteps = 1, kParameter = 2, kGradient = 3, kFirstState = 4;

// A state of an optimiser, and whether the attributes of this call ask for it.
struct OptimiserState {
  const char* name;
  bool needed;
};

inline Expected<Types> infer_update(const Call& call, std::initializer_list<OptimiserState> states) {
  if (!is_float(call.dtype(kRate)) || element_count(call.shape(kRate)) != 1)
    return make_error("R is {}, expected a floating scalar",
                      to_string(TensorType{call.dtype(kRate), call.shape(kRate)}));
  if (call.dtype(kSteps) != DType::i64 || element_count(call.shape(kSteps)) != 1)
    return make_error("T is {}, expected an int64 scalar",
                      to_string(TensorType{call.dtype(kSteps), call.shape(kSteps)}));
  if (call.tensor(kSteps) && call.tensor(kSteps)->int_at(0) < 0)
    return make_error("T is {}, expected the number of steps done before", call.tensor(kSteps)->int_at(0));
  const TensorType parameter{call.dtype(kParameter), call.shape(kParameter)};
  const auto same = [&](int k, const char* name) -> Expected<void> {
    const TensorType type{call.dtype(k), call.shape(k)};
    if (type.dtype != parameter.dtype || type.shape != parameter.shape)
      return make_error("{} is {}, the parameter is {}", name, to_string(type), to_string(parameter));
    return {};
  };
  OPDIFF_RETURN_IF_ERROR(same(kGradient, "the gradient"));
  Types types{parameter};
  int k = kFirstState;
  for (const OptimiserState& state : states) {
    if (state.needed != call.has(k))
      return make_error("state '{}' (input {}) is {}", state.name, k,
                        call.has(k) ? "given, but the attributes have no use for it" : "missing");
    if (state.needed) OPDIFF_RETURN_IF_ERROR(same(k, state.name));
    const auto output = static_cast<std::size_t>(k - kFirstState + 1);
    if (!state.needed && call.wants(output))
      return make_error("output {} ('{}') is wanted, but the attributes have no such state", output, state.name);
    types.push_back(state.needed ? parameter : TensorType{parameter.dtype, Shape{0}});
    ++k;
  }
  return types;
}

inline Expected<void> check_range(const Call& call, const char* name, double otherwise, double low, double end) {
  const double value = call.real(name, otherwise);
  if (!(value >= low && value < end))
    return make_error("attribute '{}' is {}, expected [{}, {})", name, value, low, end);
  return {};
}

// Where epsilon is added.
inline Expected<std::string> epsilon_place(const Call& call, std::initializer_list<const char*> places) {
  std::string place = call.text("epsilon_place", "outside");
  for (const char* known : places)
    if (place == known) return place;
  return make_error("attribute 'epsilon_place' is '{}', expected one of outside, inside{}", place,
                    places.size() > 2 ? ", uncorrected" : "");
}

// x^n by squaring: the errors of x^n = x^(n-1) x grow as much.
template <class T>
T power(T x, std::int64_t n) {
  T result(1);
  for (; n > 0; n /= 2) {
    if (n % 2 != 0) result = result * x;
    if (n > 1) x = x * x;
  }
  return result;
}

inline double learning_rate(const Call& call) { return call.tensor(kRate)->at(0); }
inline std::int64_t steps_before(const Call& call) { return call.tensor(kSteps)->int_at(0); }

// The outputs in order; empty where there is no such state.
template <class T>
std::vector<std::span<T>> update_outputs(Frame<T>& frame, int states) {
  const Shape& shape = frame.call().shape(kParameter);
  const auto shape_of = [&](int k) { return k == 0 || frame.call().has(kFirstState + k - 1) ? shape : Shape{0}; };
  for (int k = 0; k <= states; ++k) frame.output(k, shape_of(k));
  std::vector<std::span<T>> outputs;
  for (int k = 0; k <= states; ++k) outputs.push_back(frame.output(k, shape_of(k)));
  return outputs;
}

// The gradient with weight decay added to it (coupled).
template <class T, class Exact>
T decayed(const Exact& g, const Exact& x, bool decays, const T& decay) {
  return decays ? T(g) + decay * T(x) : T(g);
}

// What a sample's states are like: zero before the first step.
enum class StateKind { signed_values, squares };

inline Sample sample_update(SampleContext& c, std::string_view op, std::map<std::string, Attribute> attributes,
                            std::initializer_list<std::pair<bool, StateKind>> states) {
  Rng& rng = c.rng();
  const Shape shape = c.shape(0, 3, rng.chance(0.3) ? 60 : 12);
  const std::int64_t steps = rng.chance(0.25) ? 0 : rng.chance(0.7) ? rng.integer(1, 20) : rng.integer(100, 20000);
  const auto rate = static_cast<float>(std::pow(10.0, rng.uniform(-4, 0)));
  std::vector<std::optional<Tensor>> inputs{Tensor::scalar_like(DType::f32, rate), SampleContext::scalar_int64(steps),
                                            c.tensor(shape), rng.chance(0.7) ? c.tensor(shape) : c.weights(shape, 1)};
  int outputs = 1;
  std::vector<bool> given;
  for (const auto& [needed, kind] : states) {
    given.push_back(needed);
    if (!needed)
      inputs.emplace_back();
    else if (steps == 0)
      inputs.emplace_back(Tensor::zeros(c.dtype(), shape));
    else if (kind == StateKind::squares)
      inputs.emplace_back(c.positive(shape));
    else
      inputs.emplace_back(c.weights(shape, 1));
    ++outputs;
  }
  while (!inputs.back()) inputs.pop_back();
  Sample sample = c.make(op, std::move(inputs), outputs);
  sample.node.domain = kTrainingDomain;
  sample.node.attributes = std::move(attributes);
  for (std::size_t k = 0; k < given.size(); ++k)
    if (!given[k]) sample.node.outputs[k + 1].clear();
  while (sample.node.outputs.back().empty()) sample.node.outputs.pop_back();
  return sample;
}

// Wrong uses that every optimiser refuses, `states` of them being needed with the attributes given; then the attributes
// that this one refuses, each set with a word of the message.
using WrongAttributes = std::vector<std::pair<std::map<std::string, Attribute>, std::string>>;
inline std::vector<Sample> refused_updates(std::string_view op, std::map<std::string, Attribute> attributes, int states,
                                           WrongAttributes wrong_attributes) {
  const Tensor rate = Tensor::zeros(DType::f32, {}), x = Tensor::zeros(DType::f32, {2}),
               steps = SampleContext::scalar_int64(0);
  std::vector<std::optional<Tensor>> good{rate, steps, x, x};
  for (int k = 0; k < states; ++k) good.emplace_back(x);
  std::vector<Sample> samples;
  const auto with = [&](std::size_t k, const Tensor& other, std::string why) {
    auto inputs = good;
    inputs[k] = other;
    samples.push_back(refused_sample(op, std::move(inputs), attributes, std::move(why)));
  };
  with(0, x, "R is");
  with(1, Tensor::zeros(DType::f32, {}), "T is");
  with(1, SampleContext::scalar_int64(-1), "T is");
  with(2, Tensor::zeros(DType::i32, {2}), "type");
  with(3, Tensor::zeros(DType::f32, {3}), "gradient");
  if (states > 0) {
    with(4, Tensor::zeros(DType::f64, {2}), "parameter");
    auto fewer = good;
    fewer.pop_back();
    samples.push_back(refused_sample(op, std::move(fewer), attributes, "missing"));
  }
  attributes["weight_decay"] = -1.0f;
  samples.push_back(refused_sample(op, good, std::move(attributes), "weight_decay"));
  for (auto& [wrong, why] : wrong_attributes)
    samples.push_back(refused_sample(op, good, std::move(wrong), std::move(why)));
  for (Sample& sample : samples) sample.node.domain = kTrainingDomain;
  return samples;
}

}  // namespace opdiff
