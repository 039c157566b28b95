// Monte Carlo arithmetic over a whole graph (Parker 1997; docs/numerics.md, section 6).
#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>

#include "numerics/parallel.h"
#include "reference/noise.h"

namespace opdiff {

Expected<std::map<std::string, std::vector<double>>> noise_floor(const Graph& graph, const TensorMap& inputs, int runs,
                                                                 std::uint64_t seed, const ForeignEvaluator& foreign) {
  TensorMap reference;
  OPDIFF_TRY(const NodeNoise noise, NodeNoise::measure(graph, inputs, &reference, foreign));

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
    results[static_cast<std::size_t>(k)] =
        noise.evaluate(graph, inputs, rng, foreign ? one_at_a_time : ForeignEvaluator());
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
