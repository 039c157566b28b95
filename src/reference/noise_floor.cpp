// Monte Carlo arithmetic over a whole graph (Parker 1997; docs/numerics.md, section 6).
#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>

#include "base/rng.h"
#include "numerics/parallel.h"
#include "ops/evaluate.h"
#include "reference/evaluate.h"

namespace opdiff {
namespace {

// Deviation of each element of each output of each node, from the one reference pass; empty where nothing is rounded.
using Planes = std::vector<std::vector<std::vector<float>>>;

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

Expected<std::map<std::string, std::vector<double>>> noise_floor(const Graph& graph, const TensorMap& inputs, int runs,
                                                                 std::uint64_t seed, const ForeignEvaluator& foreign) {
  Planes planes(graph.nodes.size());
  const Visitor note = [&](const NodeVisit& visit) -> Expected<void> {
    if (const MetaOperator* op = find_operator(visit.node->domain, visit.node->op))
      planes[static_cast<std::size_t>(visit.index)] =
          deviations(*op, Call(*visit.node, graph.opset(visit.node->domain), visit.inputs));
    return {};
  };
  OPDIFF_TRY(const TensorMap reference, evaluate_graph(graph, inputs, note, foreign));

  std::map<std::string, std::vector<double>> squares;
  for (const auto& [name, tensor] : reference) squares[name].assign(static_cast<std::size_t>(tensor.size()), 0);
  std::vector<Expected<TensorMap>> results(static_cast<std::size_t>(runs), TensorMap());
  std::mutex ask;
  const ForeignEvaluator one_at_a_time = [&](const Node& node, std::span<const Tensor* const> values) {
    const std::lock_guard lock(ask);
    return foreign(node, values);
  };
  parallel_for(runs, [&](std::int64_t k) {
    Rng rng(seed, "noise floor", static_cast<std::uint64_t>(k));
    results[static_cast<std::size_t>(k)] = evaluate_perturbed(
        graph, inputs,
        [&](int node, std::vector<Tensor>& outputs) {
          const auto& plane = planes[static_cast<std::size_t>(node)];
          for (std::size_t o = 0; o < plane.size(); ++o)
            if (plane[o].size() == static_cast<std::size_t>(outputs[o].size()))
              outputs[o] = perturbed(outputs[o], plane[o], rng);
        },
        foreign ? one_at_a_time : ForeignEvaluator());
  });
  for (const auto& result : results) {
    if (!result) return tl::unexpected<Error>(result.error());
    for (const auto& [name, tensor] : *result) {
      std::vector<double>& sum = squares[name];
      const Tensor& unperturbed = reference.at(name);
      if (tensor.shape() != unperturbed.shape())
        return make_error("output '{}' changes its shape under rounding noise", name);
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const double off = tensor.at(i) - unperturbed.at(i);
        if (std::isfinite(off)) sum[static_cast<std::size_t>(i)] += off * off;
      }
    }
  }
  for (auto& [name, s] : squares) {
    for (double& v : s) v = std::sqrt(v / runs);
    // Of elements that moved at all: after a Relu most may be constant zeros, and a floor of 0 beside its kink would
    // call the first honest rounding infinitely wrong.
    std::vector<double> sorted;
    std::copy_if(s.begin(), s.end(), std::back_inserter(sorted), [](double v) { return v > 0; });
    if (sorted.empty()) continue;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    const double median = sorted[sorted.size() / 2];
    for (double& v : s) v = std::max(v, median);
  }
  return squares;
}

}  // namespace opdiff
