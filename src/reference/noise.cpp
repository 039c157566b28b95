#include "reference/noise.h"

#include <cmath>

#include "ops/evaluate.h"

namespace opdiff {
namespace {

std::vector<std::vector<float>> deviations(const MetaOperator& op, const Call& call) {
  if (!op.kernels.f64 || !is_float(working_dtype(op, call))) return {};
  std::vector<std::vector<float>> planes;
  for (const EnclosedTensor& e : enclose(op, call, inner_f32(working_dtype(op, call)), 0)) {
    planes.emplace_back(e.deviation.begin(), e.deviation.end());
    for (float& d : planes.back())
      if (!std::isfinite(d)) d = 0;
  }
  return planes;
}

Tensor perturbed(const Tensor& tensor, const std::vector<float>& deviation, Rng& rng) {
  std::vector<double> values = tensor.to_doubles();
  const double width = std::sqrt(3.0);  // uniform in +-sqrt(3) d has the standard deviation d
  for (std::size_t i = 0; i < values.size(); ++i)
    if (deviation[i] != 0) values[i] += deviation[i] * rng.uniform(-width, width);
  return Tensor::from_doubles(tensor.dtype(), tensor.shape(), values);
}

}  // namespace

Expected<NodeNoise> NodeNoise::measure(const Graph& graph, const TensorMap& inputs, TensorMap* outputs,
                                       const ForeignEvaluator& foreign) {
  NodeNoise noise;
  noise.planes_.resize(graph.nodes.size());
  const Visitor note = [&](const NodeVisit& visit) -> Expected<void> {
    if (const MetaOperator* op = find_operator(visit.node->domain, visit.node->op))
      noise.planes_[static_cast<std::size_t>(visit.index)] =
          deviations(*op, Call(*visit.node, graph.opset(visit.node->domain), visit.inputs));
    return {};
  };
  OPDIFF_TRY(*outputs, evaluate_graph(graph, inputs, note, foreign));
  return noise;
}

Expected<TensorMap> NodeNoise::evaluate(const Graph& graph, const TensorMap& inputs, Rng& rng,
                                        const ForeignEvaluator& foreign) const {
  return evaluate_perturbed(
      graph, inputs,
      [&](int node, std::vector<Tensor>& outputs) {
        const auto& plane = planes_[static_cast<std::size_t>(node)];
        for (std::size_t o = 0; o < plane.size(); ++o)
          if (plane[o].size() == static_cast<std::size_t>(outputs[o].size()))
            outputs[o] = perturbed(outputs[o], plane[o], rng);
      },
      foreign);
}

}  // namespace opdiff
