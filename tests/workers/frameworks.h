// What the tests of the frameworks' own workers share: which are installed, what to run on them, what they fused.
#pragma once

#include "base/npy.h"
#include "graph/onnx_reader.h"
#include "graph/segments.h"
#include "reference/differentiate.h"
#include "reference/evaluate.h"
#include "workers/environment.h"
#include "workers/open.h"
#include "workers/test_worker.h"

namespace opdiff::test {

inline bool installed(const std::string& name) { return !installed_backends(name).empty(); }

inline std::unique_ptr<Backend> open(const std::string& spec) {
  auto backend = open_backend(spec);
  if (!backend) {
    ADD_FAILURE() << backend.error().message;
    return nullptr;
  }
  return *std::move(backend);
}

inline Graph read(const std::string& file) {
  auto graph = read_onnx(OPDIFF_SOURCE_DIR + file);
  if (!graph) ADD_FAILURE() << graph.error().message;
  return graph ? *graph : Graph{};
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a.at(i) - b.at(i));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

using Nodes = std::vector<std::string>;

// The nodes of the one kernel that computes `node`; empty where none or several do.
inline Nodes fused_with(const Outcome& outcome, const std::string& node) {
  Nodes found;
  for (const auto& kernel : outcome.kernels.value_or(std::vector<Kernel>{})) {
    if (std::find(kernel.nodes.begin(), kernel.nodes.end(), node) == kernel.nodes.end()) continue;
    if (!found.empty()) return {};
    found = kernel.nodes;
  }
  return found;
}

inline Outcome run_model(Backend& backend, const std::string& name, const PrepareOptions& options) {
  const auto inputs = read_npz(fmt::format("{}/tests/models/{}_inputs.npz", OPDIFF_SOURCE_DIR, name));
  if (!inputs) {
    ADD_FAILURE() << inputs.error().message;
    return {};
  }
  return run_once(backend, read(fmt::format("/tests/models/{}.onnx", name)), *inputs, options);
}

inline std::vector<Dimension> extents(const Shape& shape) {
  std::vector<Dimension> result;
  for (const auto extent : shape) result.push_back({extent, ""});
  return result;
}

inline Tensor counting(const Shape& shape, double step) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = step * (static_cast<double>(i * 7 % 13) - 6);
  return Tensor::from_doubles(DType::f32, shape, values);
}

struct TrainingStep {
  TrainingGraph built;
  TensorMap inputs;
};

// A forward part that forks and joins, its backward pass, and the update of one parameter.
inline TrainingStep training_step() {
  Graph graph;
  graph.opsets = {{"", 17}};
  graph.inputs = {{"x", DType::f32, extents({2, 3, 5, 5})}};
  graph.outputs = {{"y", DType::f32, extents({2, 5})}};
  graph.initialisers = {
      {"w", counting({4, 3, 3, 3}, 0.0625)}, {"b", counting({4}, 0.25)}, {"v", counting({4, 5}, 0.125)}};
  graph.nodes = {{"conv", "Conv", "", {"x", "w", "b"}, {"c"}, {}},
                 {"relu", "Relu", "", {"c"}, {"r"}, {}},
                 {"tanh", "Tanh", "", {"r"}, {"t"}, {}},
                 {"add", "Add", "", {"r", "t"}, {"s"}, {}},
                 {"pool", "GlobalAveragePool", "", {"s"}, {"p"}, {}},
                 {"flat", "Flatten", "", {"p"}, {"f"}, {}},
                 {"dense", "MatMul", "", {"f", "v"}, {"y"}, {}}};
  const auto types = infer_types(graph, {{"x", {DType::f32, Shape{2, 3, 5, 5}}}});
  EXPECT_TRUE(types) << types.error().message;
  auto built = differentiate(graph, *types, {{"y", "dy"}}, {"x", "w", "b", "v"});
  EXPECT_TRUE(built) << built.error().message;
  Graph& step = built->graph;
  step.initialisers["rate"] = Tensor::from_doubles(DType::f32, {}, std::vector<double>{0.5});
  step.nodes.push_back({"scaled", "Mul", "", {"rate", built->training.gradients.at("w")}, {"dw"}, {}});
  step.nodes.push_back({"updated", "Sub", "", {"w", "dw"}, {"w/new"}, {}});
  step.outputs.push_back({"w/new", DType::f32, extents({4, 3, 3, 3})});
  return {*std::move(built), {{"x", counting({2, 3, 5, 5}, 0.125)}, {"dy", counting({2, 5}, 0.5)}}};
}

}  // namespace opdiff::test
