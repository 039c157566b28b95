#include <algorithm>
#include <cmath>

#include "graph/segments.h"
#include "graph/uses.h"
#include "ops/evaluate.h"
#include "ops/gradient.h"
#include "reference/evaluate.h"
#include "workers/fed_faults.h"

namespace opdiff {
namespace {

std::vector<int> with_ancestors(const Graph& graph, std::size_t position) {
  const Uses uses(graph);
  std::set<int> nodes = {static_cast<int>(position)};
  std::vector<int> todo(nodes.begin(), nodes.end());
  while (!todo.empty()) {
    const int node = todo.back();
    todo.pop_back();
    for (const int producer : uses.predecessors(node)) {
      if (nodes.insert(producer).second) todo.push_back(producer);
    }
  }
  return {nodes.begin(), nodes.end()};
}

// Where the cotangent of output 0 is among a gradient's inputs.
Expected<std::size_t> cotangent_of(const FaultyCall& call) {
  if (call.node.domain != kGradientDomain) return make_error("it is no gradient");
  const auto count = call.node.attributes.find(kCotangents);
  const auto* given = count == call.node.attributes.end() ? nullptr : std::get_if<std::int64_t>(&count->second);
  const std::size_t place = call.inputs.size() - static_cast<std::size_t>(given ? *given : 1);
  if (place >= call.inputs.size() || !call.inputs[place]) return make_error("it has no cotangent");
  return place;
}

// The output with input number `place` replaced, minus the right one.
Expected<std::vector<double>> difference(const FaultyCall& call, std::size_t place, const Tensor& replaced) {
  std::vector<const Tensor*> inputs(call.inputs.begin(), call.inputs.end());
  inputs[place] = &replaced;
  OPDIFF_TRY(const std::vector<Tensor> wrong, evaluate_node(call.node, call.opset, inputs));
  std::vector<double> result(static_cast<std::size_t>(call.right.size()), 0);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const double apart = wrong[call.output].at(at) - call.right.at(at);
    if (std::isfinite(apart)) result[i] = apart;
  }
  return result;
}

Expected<std::vector<double>> times(const FaultyCall& call, double factor) {
  std::vector<double> result = call.right.to_doubles();
  for (double& value : result) value = std::isfinite(value) ? value * (factor - 1) : 0;
  return result;
}

// The length of the cotangent's dimension `axis`, and that dimension.
Expected<std::pair<std::size_t, std::int64_t>> axis_of(const Tensor& cotangent, const Fault& fault) {
  const auto rank = static_cast<std::int64_t>(cotangent.shape().size());
  const std::int64_t axis = fault.axis.value_or(0) < 0 ? *fault.axis + rank : fault.axis.value_or(0);
  if (axis < 0 || axis >= rank) return make_error("its cotangent has no axis {}", fault.axis.value_or(0));
  const auto place = static_cast<std::size_t>(axis);
  const std::int64_t length = cotangent.shape()[place];
  if (length < 2) return make_error("its cotangent has the length {} along axis {}", length, axis);
  return std::pair(place, length);
}

}  // namespace

Expected<std::vector<double>> add_deviations(const FaultyCall& faulty, const Fault& fault) {
  const Call call(faulty.node, faulty.opset, faulty.inputs);
  const MetaOperator& op = *find_operator(faulty.node.domain, faulty.node.op);
  const Tensor& right = faulty.right;
  if (!op.kernels.f64 || !is_float(right.dtype())) return make_error("it does not round: it has no deviation");
  std::vector<double> largest(static_cast<std::size_t>(right.size()), 0);
  for (std::size_t formula = 0; formula < op.formulas.size(); ++formula) {
    const auto enclosed = enclose(op, call, inner_f32(right.dtype()), static_cast<int>(formula));
    for (std::size_t i = 0; i < largest.size(); ++i) {
      const double deviation = enclosed[faulty.output].deviation[i];
      if (std::isfinite(deviation)) largest[i] = std::max(largest[i], deviation);
    }
  }
  const std::int64_t wanted = fault.index.value_or(0) < 0 ? *fault.index + right.size() : fault.index.value_or(0);
  if (fault.index && (wanted < 0 || wanted >= right.size()))
    return make_error("index={}: it gives {} elements", *fault.index, right.size());
  for (std::int64_t i = 0; i < right.size(); ++i)
    largest[static_cast<std::size_t>(i)] *= fault.index && i != wanted ? 0 : fault.size.value_or(4);
  return largest;
}

Expected<std::vector<double>> add_unsummed(const FaultyCall& call, const Fault& fault) {
  OPDIFF_TRY(const std::size_t place, cotangent_of(call));
  const Tensor& cotangent = *call.inputs[place];
  OPDIFF_TRY(const auto along, axis_of(cotangent, fault));
  const auto [axis, length] = along;
  const std::int64_t kept = fault.index.value_or(0) < 0 ? *fault.index + length : fault.index.value_or(0);
  const Shape& shape = cotangent.shape();
  std::int64_t inner = 1;
  for (std::size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  std::vector<double> values = cotangent.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (static_cast<std::int64_t>(i) / inner % length != kept) values[i] = 0;
  return difference(call, place, Tensor::from_doubles(cotangent.dtype(), shape, values));
}

Expected<std::vector<double>> add_mean_for_sum(const FaultyCall& call, const Fault& fault) {
  OPDIFF_TRY(const std::size_t place, cotangent_of(call));
  OPDIFF_TRY(const auto along, axis_of(*call.inputs[place], fault));
  return times(call, 1 / static_cast<double>(along.second));
}

Expected<std::vector<double>> add_undivided(const FaultyCall& call, const Fault&) {
  OPDIFF_TRY(const std::size_t place, cotangent_of(call));
  const std::string& op = call.node.op;
  double count = 1;
  if (op == "AveragePool") {
    const auto kernel = call.node.attributes.find("kernel_shape");
    if (kernel != call.node.attributes.end())
      if (const auto* sizes = std::get_if<std::vector<std::int64_t>>(&kernel->second))
        for (const std::int64_t size : *sizes) count *= static_cast<double>(size);
  } else if ((op == "ReduceMean" || op == "GlobalAveragePool") && call.inputs[place]->size() > 0) {
    count = static_cast<double>(call.right.size()) / static_cast<double>(call.inputs[place]->size());
  }
  if (count == 1) return make_error("it divides by no count");
  return times(call, count);
}

Expected<std::vector<double>> add_wrong_kink(const FaultyCall& call, const Fault& fault) {
  OPDIFF_TRY([[maybe_unused]] const std::size_t place, cotangent_of(call));
  const Tensor& x = *call.inputs[0];
  std::vector<double> values = x.to_doubles();
  for (double& value : values) value += fault.size.value_or(0.25);
  return difference(call, 0, Tensor::from_doubles(x.dtype(), x.shape(), values));
}

FedFault::FedFault(const Graph& graph, std::size_t position)
    : computation_(extract_subgraph(graph, with_ancestors(graph, position), {})) {}

Expected<Tensor> FedFault::tensor(const TensorMap& inputs, const Fault& fault) const {
  TensorMap own;
  for (const auto& input : computation_.inputs) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) return make_error("the input '{}' is missing", input.name);
    own[input.name] = found->second;
  }
  std::optional<Tensor> result;
  const auto visit = [&](const NodeVisit& visit) -> Expected<void> {
    if (static_cast<std::size_t>(visit.index) + 1 != computation_.nodes.size()) return {};
    OPDIFF_TRY(const std::size_t output, changed_output(*visit.node, fault));
    if (!visit.outputs[output]) return make_error("the reference gives no output {}", output);
    const Tensor& right = *visit.outputs[output];
    OPDIFF_TRY(
        const auto added,
        fault.kind->added({*visit.node, computation_.opset(visit.node->domain), visit.inputs, right, output}, fault));
    result = Tensor::from_doubles(right.dtype(), right.shape(), added);
    return {};
  };
  OPDIFF_TRY([[maybe_unused]] const TensorMap outputs, evaluate_graph(computation_, own, visit));
  if (!result) return make_error("the reference did not reach it");
  return *std::move(result);
}

}  // namespace opdiff
