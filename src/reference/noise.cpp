#include "reference/noise.h"

#include <algorithm>
#include <cmath>

#include "ops/evaluate.h"

namespace opdiff {
namespace {

// Of the two profiles of the `rounding` rung the one that errs more: frameworks that keep what a backward pass needs in
// the storage format (a softmax) are as honest as those that keep it in f32.
std::vector<std::vector<float>> deviations(const MetaOperator& op, const Call& call) {
  if (!op.kernels.f64 || !is_float(working_dtype(op, call))) return {};
  const DType storage = working_dtype(op, call);
  std::vector<std::vector<float>> planes;
  const auto keep_larger = [&](const Profile& profile) {
    const std::vector<EnclosedTensor> enclosed = enclose(op, call, profile, 0);
    planes.resize(enclosed.size());
    for (std::size_t k = 0; k < enclosed.size(); ++k) {
      planes[k].resize(enclosed[k].deviation.size());
      for (std::size_t i = 0; i < planes[k].size(); ++i)
        if (const auto d = static_cast<float>(enclosed[k].deviation[i]); std::isfinite(d))
          planes[k][i] = std::max(planes[k][i], d);
    }
  };
  keep_larger(inner_f32(storage));
  if (profiles_differ(storage)) keep_larger(inner_storage(storage));
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
