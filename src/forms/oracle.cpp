#include "forms/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/format.h"
#include "graph/uses.h"
#include "judge/judge.h"
#include "reference/differentiate.h"
#include "reference/evaluate.h"
#include "reference/noise.h"

namespace opdiff {
namespace {

bool has_cast(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == "Cast"; });
}

Tensor widened(const Tensor& tensor) {
  return is_float(tensor.dtype()) ? Tensor::from_doubles(DType::f64, tensor.shape(), tensor.to_doubles()) : tensor;
}

void widen(std::vector<ValueInfo>& values) {
  for (ValueInfo& value : values)
    if (is_float(value.dtype)) value.dtype = DType::f64;
}

// The same computation in f64; folded weights as they were before they were rounded.
Graph widened(const RunnableSide& side) {
  Graph graph = side.graph;
  for (auto& [name, tensor] : graph.initialisers) {
    const auto unrounded = side.unrounded.find(name);
    tensor = unrounded == side.unrounded.end() ? widened(tensor)
                                               : Tensor::from_doubles(DType::f64, tensor.shape(), unrounded->second);
  }
  for (auto* values : {&graph.inputs, &graph.outputs, &graph.values}) widen(*values);
  for (Node& node : graph.nodes)
    for (auto& [name, attribute] : node.attributes)
      if (Tensor* tensor = std::get_if<Tensor>(&attribute)) *tensor = widened(*tensor);
  return graph;
}

TensorMap widened(const TensorMap& inputs) {
  TensorMap result;
  for (const auto& [name, tensor] : inputs) result[name] = widened(tensor);
  return result;
}

// Each folded weight as one of the two numbers beside its value: which one a framework takes is rounding.
Graph with_folded_drawn(const RunnableSide& side, Rng& rng) {
  Graph graph = side.graph;
  for (const auto& [name, values] : side.unrounded) {
    Tensor& tensor = graph.initialisers.at(name);
    const double u = format_of(tensor.dtype()).unit_roundoff();
    std::vector<double> moved = values;
    for (double& value : moved) value += std::fabs(value) * u * rng.uniform(-1, 1);
    tensor = Tensor::from_doubles(tensor.dtype(), tensor.shape(), moved);
  }
  return graph;
}

double median_of_positive(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double v) { return !(v > 0); }), values.end());
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What the side's formula gives: evaluated in double, where the dtype under test is narrower and no Cast says what is
// rounded; else the reference chain.
Expected<TensorMap> right_values(const RunnableSide& side, const RunnableCase& c) {
  const TensorMap inputs = inputs_of(side.graph, c.inputs);
  if (c.dtype != DType::f64 && !has_cast(side.graph)) return evaluate_graph(widened(side), widened(inputs));
  OPDIFF_TRY(const TensorMap chain, evaluate_graph(side.graph, inputs));
  return widened(chain);
}

// From the side's own right values: what a chain of roundings is off by, all its runs may share; what its formula is
// off by is no rounding.
Expected<Floor> floor_of(const RunnableSide& side, const RunnableCase& c) {
  const TensorMap inputs = inputs_of(side.graph, c.inputs);
  OPDIFF_TRY(const TensorMap right, right_values(side, c));
  TensorMap reference;
  OPDIFF_TRY(const NodeNoise noise, NodeNoise::measure(side.graph, inputs, &reference));
  Floor squares;
  for (const auto& [name, tensor] : reference) squares[name].resize(static_cast<std::size_t>(tensor.size()));
  Rng rng(c.seed, "form noise");
  for (int run = 0; run < kNoiseRuns; ++run) {
    OPDIFF_TRY(const TensorMap moved, noise.evaluate(with_folded_drawn(side, rng), inputs, rng));
    for (auto& [name, sums] : squares) {
      const std::vector<double> a = moved.at(name).to_doubles(), b = right.at(name).to_doubles();
      for (std::size_t i = 0; i < sums.size(); ++i)
        if (const double d = a[i] - b[i]; std::isfinite(d)) sums[i] += d * d / kNoiseRuns;
    }
  }
  for (auto& [name, floor] : squares) {
    const Tensor& tensor = reference.at(name);
    if (!is_float(tensor.dtype())) continue;
    const double u = format_of(tensor.dtype()).unit_roundoff();
    for (std::size_t i = 0; i < floor.size(); ++i) {
      const double rounding = u * std::fabs(right.at(name).at(static_cast<std::int64_t>(i)));
      floor[i] = std::sqrt(floor[i] + rounding * rounding / 3);
    }
    const double least = median_of_positive(floor);
    for (double& s : floor) s = std::max(s, least);
  }
  return squares;
}

// All tensors of a graph's inputs, as the graph has them.
Expected<void> add_gradient(RunnableSide& side, RunnableCase& c) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, tensor] : inputs_of(side.graph, c.inputs)) types[name] = {tensor.dtype(), tensor.shape()};
  OPDIFF_TRY(const TypeMap all, infer_types(side.graph, types));
  std::map<std::string, std::string> cotangents;
  for (const ValueInfo& output : side.graph.outputs) cotangents[output.name] = output.name + "/cotangent";
  std::vector<std::string> wrt;
  for (const std::string& name : differentiable_tensors(side.graph, all))
    if (types.count(name)) wrt.push_back(name);
  if (wrt.empty()) return make_error("no input has a gradient");
  OPDIFF_TRY(TrainingGraph training, differentiate(side.graph, all, cotangents, wrt));
  for (const ValueInfo& output : side.graph.outputs) {
    const std::string& name = cotangents.at(output.name);
    if (c.inputs.count(name)) continue;
    Rng rng(c.seed, name);
    const Shape& shape = *all.at(output.name).shape;
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (double& value : values) value = rng.normal();
    c.inputs[name] = Tensor::from_doubles(output.dtype, shape, values);
  }
  side.graph = std::move(training.graph);
  side.training = std::move(training.training);
  return {};
}

void keep_worst(Reading& worst, const std::string& name, const FloorComparison& one) {
  Reading reading;
  reading.wrong = one.suspect;
  reading.non_finite_differs = one.non_finite_differs;
  reading.rms = one.rms;
  reading.max = one.max;
  reading.worst_output = name;
  const bool wrong = worst.wrong || reading.wrong;
  const bool non_finite = worst.non_finite_differs || reading.non_finite_differs;
  if (worst.worst_output.empty() || reading.error() > worst.error()) worst = reading;
  worst.wrong = wrong;
  worst.non_finite_differs = non_finite;
}

}  // namespace

TensorMap inputs_of(const Graph& graph, const TensorMap& all) {
  TensorMap result;
  for (const ValueInfo& input : graph.inputs) result[input.name] = all.at(input.name);
  return result;
}

Expected<RunnableCase> runnable(FormCase form_case, bool gradient) {
  RunnableCase c{form_case.form,
                 std::move(form_case.parameters),
                 form_case.region,
                 form_case.dtype,
                 form_case.seed,
                 {},
                 std::move(form_case.inputs)};
  for (Side& side : form_case.sides)
    c.sides.push_back({std::move(side.name), std::move(side.graph), std::nullopt, std::move(side.unrounded), {}});
  if (!gradient) return c;
  if (!c.form->no_gradient.empty())
    return make_error("{} is not differentiated: {}", c.form->name, c.form->no_gradient);
  for (RunnableSide& side : c.sides)
    if (const auto added = add_gradient(side, c); !added) side.without_gradient = added.error().message;
  if (!c.sides[0].without_gradient.empty())
    return make_error("{}: {}: {}", c.form->name, c.sides[0].name, c.sides[0].without_gradient);
  return c;
}

Expected<CaseOracle> make_oracle(const RunnableCase& c) {
  CaseOracle oracle;
  OPDIFF_TRY(oracle.centre, right_values(c.sides[0], c));
  for (const RunnableSide& side : c.sides) {
    Floor floor;
    if (side.without_gradient.empty()) {
      OPDIFF_TRY(floor, floor_of(side, c));
    }
    oracle.floors.push_back(std::move(floor));
  }
  return oracle;
}

FloorComparison read_output(const Tensor& got, DType expected, const Tensor& centre, const std::vector<double>& floor) {
  if (got.dtype() != expected || got.shape() != centre.shape()) {
    FloorComparison wrong;
    wrong.suspect = true;
    wrong.rms = wrong.max = std::numeric_limits<double>::infinity();
    return wrong;
  }
  return compare_with_floor(widened(got), centre, floor);
}

Reading read_side(const Outcome& outcome, const RunnableSide& side, const TensorMap& centre, const Floor& floor,
                  const std::map<std::string, Verdict>& apart) {
  Reading worst;
  worst.outcome = outcome.kind;
  worst.reason = outcome.reason;
  if (!outcome.ok()) return worst;
  for (const ValueInfo& output : side.graph.outputs) {
    const auto right = centre.find(output.name);
    const auto got = outcome.outputs.find(output.name);
    if (right == centre.end() || got == outcome.outputs.end() || apart.count(output.name)) continue;
    const FloorComparison one = read_output(got->second, output.dtype, right->second, floor.at(output.name));
    worst.wrong_shape = worst.wrong_shape || got->second.shape() != right->second.shape();
    keep_worst(worst, output.name, one);
  }
  return worst;
}

std::map<std::string, Verdict> explained_outputs(const Outcome& outcome, const RunnableSide& side,
                                                 const RunnableCase& c) {
  std::map<std::string, Verdict> explained;
  std::set<std::string> made;  // by nodes that read something
  const auto is_made = [&](const std::string& name) { return made.count(name) > 0; };
  const Visitor visit = [&](const NodeVisit& visit) -> Expected<void> {
    const Node& node = *visit.node;
    const std::vector<std::string> names = slot_names(node);
    if (names.empty()) return {};
    if (std::none_of(names.begin(), names.end(), is_made)) {
      std::vector<const Tensor*> got;
      for (const std::string& name : node.outputs) {
        const auto found = outcome.outputs.find(name);
        got.push_back(found == outcome.outputs.end() ? nullptr : &found->second);
      }
      const std::vector<Verdict> verdicts = judge_node(node, side.graph.opset(node.domain), visit.inputs, got);
      for (std::size_t k = 0; k < verdicts.size(); ++k)
        if (got[k] && !verdicts[k].unproven && verdicts[k].rung < Rung::unlikely)
          explained[node.outputs[k]] = verdicts[k];
    }
    made.insert(node.outputs.begin(), node.outputs.end());
    made.erase("");  // an output that nobody asked for is no input of a node that lacks an optional one
    return {};
  };
  if (!evaluate_graph(side.graph, inputs_of(side.graph, c.inputs), visit)) return {};
  return explained;
}

Reading read_difference(const TensorMap& a, const Floor& floor_a, const TensorMap& b, const Floor& floor_b) {
  Reading worst;
  for (const auto& [name, left] : a) {
    const auto right = b.find(name);
    const auto fa = floor_a.find(name), fb = floor_b.find(name);
    if (right == b.end() || fa == floor_a.end() || fb == floor_b.end()) continue;
    std::vector<double> both(fa->second.size());
    for (std::size_t i = 0; i < both.size() && i < fb->second.size(); ++i)
      both[i] = std::hypot(fa->second[i], fb->second[i]);
    keep_worst(worst, name, read_output(left, right->second.dtype(), widened(right->second), both));
  }
  return worst;
}

}  // namespace opdiff
