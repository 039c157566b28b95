#include "train/inference.h"

#include <algorithm>
#include <cmath>

#include "plan/reading.h"
#include "reference/evaluate.h"

namespace opdiff {

Expected<Classifier> Classifier::make(const Graph& graph, const TypeMap& types) {
  Classifier classifier;
  if (graph.outputs.size() != 1)
    return make_error("the model has {} outputs; a classifier has one, [rows, classes]", graph.outputs.size());
  const std::string& scores = graph.outputs[0].name;
  const auto type = types.find(scores);
  if (type == types.end() || !is_float(type->second.dtype) || !type->second.shape || type->second.shape->size() != 2 ||
      (*type->second.shape)[1] < 2)
    return make_error("output '{}' is {}; a classifier's is float[rows, classes]", scores,
                      type == types.end() || !type->second.shape ? "of unknown shape" + unknown_operator_hint(graph)
                                                                 : to_string(type->second));
  classifier.model_ = graph;
  classifier.graph_ = graph;
  classifier.scores_ = classifier.probabilities_ = scores;
  const bool has_softmax = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op == "Softmax" && node.outputs[0] == scores;
  });
  if (has_softmax) return classifier;
  classifier.probabilities_ = scores + "/probabilities";
  Node softmax;
  softmax.id = classifier.probabilities_;
  softmax.op = "Softmax";
  softmax.inputs = {scores};
  softmax.outputs = {classifier.probabilities_};
  softmax.attributes["axis"] = std::int64_t{1};
  classifier.graph_.nodes.push_back(std::move(softmax));
  classifier.graph_.outputs[0].name = classifier.probabilities_;
  return classifier;
}

Expected<Inference> Classifier::reference(const TensorMap& inputs, std::uint64_t seed) const {
  OPDIFF_TRY(const TensorMap outputs, evaluate_graph(graph_, inputs));
  OPDIFF_TRY(const auto floors, noise_floor(graph_, inputs, kNoiseRuns, seed));
  const Tensor& tensor = outputs.at(probabilities_);
  const std::vector<double>& floor = floors.at(probabilities_);
  Inference result;
  result.rows = tensor.shape()[0];
  result.classes = tensor.shape()[1];
  result.reference.value = tensor.to_doubles();
  for (std::size_t i = 0; i < floor.size(); ++i) {
    result.reference.low.push_back(std::max(0.0, result.reference.value[i] - kIntervalFloors * floor[i]));
    result.reference.high.push_back(std::min(1.0, result.reference.value[i] + kIntervalFloors * floor[i]));
  }
  for (std::int64_t row = 0; row < result.rows; ++row) {
    const auto start = static_cast<std::size_t>(row * result.classes);
    std::size_t first = start, second = start + 1;
    const auto& p = result.reference.value;
    if (p[second] > p[first]) std::swap(first, second);
    for (std::size_t i = start + 2; i < start + static_cast<std::size_t>(result.classes); ++i) {
      if (p[i] > p[first]) {
        second = first;
        first = i;
      } else if (p[i] > p[second]) {
        second = i;
      }
    }
    result.margin.push_back(p[first] - p[second]);
    result.movement.push_back(kIntervalFloors * (floor[first] + floor[second]));
  }
  return result;
}

Expected<std::vector<double>> Classifier::probabilities(const Outcome& outcome) const {
  const auto scores = outcome.outputs.find(scores_);
  if (scores == outcome.outputs.end()) return make_error("no output '{}'", scores_);
  if (probabilities_ == scores_) return scores->second.to_doubles();
  const Tensor* given[] = {&scores->second};
  OPDIFF_TRY(const auto values, evaluate_node(graph_.nodes.back(), graph_.opset(), given));
  return values[0].to_doubles();
}

}  // namespace opdiff
