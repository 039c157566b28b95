// The frameworks' own workers, where they are installed: on whole networks, on isolated nodes, in every dtype.
#include <gmock/gmock.h>

#include "base/npy.h"
#include "graph/onnx_reader.h"
#include "graph/segments.h"
#include "reference/differentiate.h"
#include "reference/evaluate.h"
#include "workers/environment.h"
#include "workers/open.h"
#include "workers/test_worker.h"

namespace opdiff::test {
namespace {

bool installed(const std::string& name) { return !installed_backends(name).empty(); }

std::unique_ptr<Backend> open(const std::string& spec) {
  auto backend = open_backend(spec);
  if (!backend) {
    ADD_FAILURE() << backend.error().message;
    return nullptr;
  }
  return *std::move(backend);
}
Graph read(const std::string& file) {
  auto graph = read_onnx(OPDIFF_SOURCE_DIR + file);
  if (!graph) ADD_FAILURE() << graph.error().message;
  return graph ? *graph : Graph{};
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a.at(i) - b.at(i));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

class Frameworks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto spec = parse_spec(GetParam());
    ASSERT_TRUE(spec);
    if (!installed(spec->name)) GTEST_SKIP() << "not installed: opdiff backend add " << spec->name;
  }
};

// Against onnxruntime without optimisations on networks of every first operator: a smoke test of the workers, not a
// judgement (1e-4 is far above what either may be off by here).
TEST_P(Frameworks, ComputeWholeNetworks) {
  if (!installed("onnxruntime")) GTEST_SKIP() << "not installed: opdiff backend add onnxruntime";
  const auto plain = open("onnxruntime:opt=disable");
  const auto backend = open(GetParam());
  ASSERT_TRUE(plain && backend);
  for (const char* name : {"/tests/models/residual12", "/tests/models/mixed_ops"}) {
    const Graph graph = read(std::string(name) + ".onnx");
    const auto inputs = read_npz(OPDIFF_SOURCE_DIR + std::string(name) + "_inputs.npz");
    ASSERT_TRUE(inputs) << inputs.error().message;
    const Outcome right = run_once(*plain, graph, *inputs);
    ASSERT_TRUE(right.ok()) << right.reason;
    const Outcome got = run_once(*backend, graph, *inputs, {.profile = true});
    if (got.kind == OutcomeKind::unsupported) continue;
    ASSERT_TRUE(got.ok()) << name << ": " << got.reason;
    for (const auto& [output, tensor] : right.outputs) {
      EXPECT_LE(largest_difference(got.outputs.at(output), tensor), 1e-4) << name << " " << output;
    }
  }
}

// conv -> relu and a softmax, apart.
TEST_P(Frameworks, IsolatedNodesStandApart) {
  const auto backend = open(GetParam());
  ASSERT_TRUE(backend);
  Graph graph;
  graph.inputs = {{"a", DType::f32, {}}, {"b", DType::f32, {}}, {"c", DType::f32, {}}};
  graph.outputs = {{"x", DType::f32, {}}, {"y", DType::f32, {}}, {"z", DType::f32, {}}};
  graph.initialisers["w"] = Tensor::from_doubles(DType::f32, {1, 1, 2, 2}, std::vector<double>{1, 2, 3, 4});
  graph.nodes = {{"conv", "Conv", "", {"a", "w"}, {"x"}, {}},
                 {"relu", "Relu", "", {"b"}, {"y"}, {}},
                 {"softmax", "Softmax", "", {"c"}, {"z"}, {{"axis", std::int64_t{1}}}}};
  const TensorMap inputs = {{"a", Tensor::from_doubles(DType::f32, {1, 1, 2, 2}, std::vector<double>{1, 1, 1, 1})},
                            {"b", Tensor::from_doubles(DType::f32, {2}, std::vector<double>{-1, 2})},
                            {"c", Tensor::from_doubles(DType::f32, {1, 2}, std::vector<double>{3, 3})}};
  const Outcome outcome = run_once(*backend, graph, inputs, {.isolated = true, .profile = true});
  ASSERT_TRUE(outcome.ok()) << outcome.reason;
  EXPECT_EQ(outcome.outputs.at("x").to_doubles(), std::vector<double>{10});
  EXPECT_EQ(outcome.outputs.at("y").to_doubles(), (std::vector<double>{0, 2}));
  EXPECT_EQ(outcome.outputs.at("z").to_doubles(), (std::vector<double>{0.5, 0.5}));
  const bool compiled = std::string(GetParam()).find("compile") != std::string::npos;
  EXPECT_EQ(outcome.node_ms.size(), compiled ? 0u : 3u);
}

TEST_P(Frameworks, LowPrecisionTravels) {
  const auto backend = open(GetParam());
  ASSERT_TRUE(backend);
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    Graph graph;
    graph.inputs = {{"a", dtype, std::vector<Dimension>{{2, ""}, {2, ""}}},
                    {"b", dtype, std::vector<Dimension>{{2, ""}, {2, ""}}}};
    graph.outputs = {{"y", dtype, {}}};
    graph.nodes = {{"mul", "Mul", "", {"a", "b"}, {"y"}, {}}};
    const Tensor a = Tensor::from_doubles(dtype, {2, 2}, std::vector<double>{1, 1.5, -2, 0.25});
    const Outcome outcome = run_once(*backend, graph, {{"a", a}, {"b", a}});
    if (outcome.kind == OutcomeKind::unsupported) continue;
    ASSERT_TRUE(outcome.ok()) << GetParam() << " " << dtype_name(dtype) << ": " << outcome.reason;
    EXPECT_EQ(outcome.outputs.at("y").dtype(), dtype);
    EXPECT_EQ(outcome.outputs.at("y").to_doubles(), (std::vector<double>{1, 2.25, 4, 0.0625})) << dtype_name(dtype);
  }
}

TEST_P(Frameworks, NoKernelIsUnsupported) {
  const auto backend = open(GetParam());
  ASSERT_TRUE(backend);
  Graph graph;
  graph.inputs = {{"a", DType::f32, {}}};
  graph.outputs = {{"y", DType::f32, {}}};
  graph.nodes = {{"odd", "NobodyKnowsThis", "", {"a"}, {"y"}, {}}};
  const TensorMap inputs = {{"a", Tensor::zeros(DType::f32, {2})}};
  const Outcome outcome = run_once(*backend, graph, inputs);
  EXPECT_EQ(outcome.kind, OutcomeKind::unsupported) << outcome.reason;
  EXPECT_THAT(outcome.reason, ::testing::HasSubstr("NobodyKnowsThis"));
  graph.nodes[0] = {"relu", "Relu", "", {"a"}, {"y"}, {}};
  EXPECT_TRUE(run_once(*backend, graph, inputs).ok());
}

// A training step whose forward part forks and joins: natively, and with the graph's own backward nodes.
TEST_P(Frameworks, TrainingGraphs) {
  const auto backend = open(GetParam());
  ASSERT_TRUE(backend);
  if (!backend->info().gradient) return;  // onnxruntime has none
  Graph graph;
  graph.opsets = {{"", 17}};
  const auto shape = [](std::vector<std::int64_t> extents) {
    std::vector<Dimension> result;
    for (const auto extent : extents) result.push_back({extent, ""});
    return result;
  };
  const auto counting = [](Shape extents, double step) {
    std::vector<double> values(static_cast<std::size_t>(element_count(extents)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = step * (static_cast<double>(i * 7 % 13) - 6);
    return Tensor::from_doubles(DType::f32, extents, values);
  };
  graph.inputs = {{"x", DType::f32, shape({2, 3, 5, 5})}};
  graph.outputs = {{"y", DType::f32, shape({2, 5})}};
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
  ASSERT_TRUE(types) << types.error().message;
  auto built = differentiate(graph, *types, {{"y", "dy"}}, {"x", "w", "b", "v"});
  ASSERT_TRUE(built) << built.error().message;
  Graph& step = built->graph;
  step.initialisers["rate"] = Tensor::from_doubles(DType::f32, {}, std::vector<double>{0.5});
  step.nodes.push_back({"scaled", "Mul", "", {"rate", built->training.gradients.at("w")}, {"dw"}, {}});
  step.nodes.push_back({"updated", "Sub", "", {"w", "dw"}, {"w/new"}, {}});
  step.outputs.push_back({"w/new", DType::f32, shape({4, 3, 3, 3})});
  const TensorMap inputs = {{"x", counting({2, 3, 5, 5}, 0.125)}, {"dy", counting({2, 5}, 0.5)}};
  const Outcome nodes = run_once(*backend, step, inputs);
  ASSERT_TRUE(nodes.ok()) << nodes.reason;
  for (const bool updates : {false, true}) {
    built->training.updates = updates;
    const Outcome native = run_once(*backend, step, inputs, {.training = &built->training});
    ASSERT_TRUE(native.ok()) << native.reason;
    ASSERT_EQ(native.outputs.size(), nodes.outputs.size());
    for (const auto& [name, tensor] : nodes.outputs)
      EXPECT_LE(largest_difference(native.outputs.at(name), tensor), 1e-5) << name;
  }
  // An inner tensor that only the graph's own backward nodes make.
  step.outputs.push_back({"s/gradient", DType::f32, {}});
  const Outcome inner = run_once(*backend, step, inputs, {.training = &built->training});
  ASSERT_TRUE(inner.ok()) << inner.reason;
  EXPECT_TRUE(inner.outputs.contains("s/gradient"));
}

INSTANTIATE_TEST_SUITE_P(All, Frameworks,
                         ::testing::Values("onnxruntime", "onnxruntime:opt=disable",
                                           "onnxruntime:opt=basic,disable=MatMulAddFusion+ConvBNFusion", "torch",
                                           "torch:mkldnn=0,threads=1", "torch:compile=inductor", "onednn"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

TEST(FrameworkOptions, AreChecked) {
  if (installed("onnxruntime")) {
    EXPECT_THAT(open_backend("onnxruntime:opt=fast").error().message,
                ::testing::HasSubstr("option opt=fast: must be one of disable, basic"));
    EXPECT_THAT(open_backend("onnxruntime:disable=NoSuchPass").error().message, ::testing::HasSubstr("no such pass"));
    EXPECT_THAT(open_backend("onnxruntime:speed=9").error().message, ::testing::HasSubstr("unknown option 'speed'"));
    EXPECT_THAT(open_backend("onnxruntime:threads=0").error().message, ::testing::HasSubstr("threads=0"));
    EXPECT_THAT(open_backend("onnxruntime@0.0.1").error().message,
                ::testing::HasSubstr("opdiff backend add onnxruntime==0.0.1"));
  }
  EXPECT_THAT(open_backend("nonsense").error().message,
              ::testing::HasSubstr("there is no backend 'nonsense'; there are: faulty"));
}

}  // namespace
}  // namespace opdiff::test
