// One training step as a graph: the model, a loss, the backward pass and the updates, all of them nodes, so that a step
// is compared, localised and assigned to backends as any graph is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/differentiate.h"

namespace opdiff {

// An operator and its attributes, by the names that people use: "cross-entropy", "adam:lr=1e-3,weight_decay=0.01".
struct LossSpec {
  std::string text = "cross-entropy";
  Node node;  // op, domain, attributes
};
Expected<LossSpec> parse_loss(const std::string& text);
// One line a loss or optimiser, with its options; for --help and error messages.
std::string loss_table();

struct OptimiserSpec {
  std::string text = "sgd:lr=0.01";
  Node node;
  double learning_rate = 0.01;
  std::optional<double> clip_norm;  // gradients are scaled down to this norm first
  std::vector<std::string> states;  // names of its state tensors, each of its parameter's shape, all zero at first
};
Expected<OptimiserSpec> parse_optimiser(const std::string& text);
std::string optimiser_table();

// Names of what a step graph has beside the model's own tensors.
inline constexpr const char* kLoss = "loss";
inline constexpr const char* kLabel = "label";
inline constexpr const char* kLearningRate = "learning_rate";
inline constexpr const char* kStep = "step";

struct StepGraph {
  TrainingGraph training;
  std::vector<std::string> parameters;  // in order of their first use
  std::string scores;                   // the model's output that the loss reads
  // What one step turns into what: parameters, optimiser states, running statistics; input -> output.
  std::map<std::string, std::string> next;
  TensorMap initial;  // of every input that `next` names, before the first step
  TypeMap types;      // of every tensor
};

// `model` is validated and its dimensions are bound. Its floating initialisers become inputs of the step (they change);
// normalisations and dropouts go to training mode. The label's type follows the loss: int64 of the scores' shape
// without axis 1 for classes, else the scores' type. Errors name the node or the option that does not fit.
Expected<StepGraph> make_step(const Graph& model, const LossSpec& loss, const OptimiserSpec& optimiser);

// The inputs of a step beside the model's own, for a comparison: parameters and running statistics as they are, states
// as after a few steps (drawn from the seed), the label of `given` or one drawn, the learning rate.
Expected<TensorMap> step_inputs(const StepGraph& step, const OptimiserSpec& optimiser, const TensorMap& given,
                                std::uint64_t seed);

// The model and the gradients of all that is differentiable in it, from cotangents of its floating outputs (graph
// inputs named OUTPUT + "/cotangent").
Expected<TrainingGraph> make_gradient(const Graph& model, const TypeMap& types);

}  // namespace opdiff
