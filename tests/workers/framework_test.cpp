// The frameworks' own workers, where they are installed: on whole networks, on isolated nodes, in every dtype.
#include <gmock/gmock.h>

#include "workers/frameworks.h"

namespace opdiff::test {
namespace {

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

TEST_P(Frameworks, SayWhatTheyFuse) {
  // Inductor compiles anew for it, which takes long: inductor_full_test.cpp.
  if (std::string_view(GetParam()).find("compile") != std::string_view::npos) return;
  const auto backend = open(GetParam());
  ASSERT_TRUE(backend);
  static const std::map<std::string, Nodes> fused = {{"onnxruntime", {"conv1", "batchnorm1", "relu1"}},
                                                     {"onednn:postops=1", {"batchnorm1", "relu1"}}};
  const auto found = fused.find(GetParam());
  const Nodes expected = found == fused.end() ? Nodes{"relu1"} : found->second;
  for (const bool profile : {false, true}) {
    const Outcome outcome = run_model(*backend, "residual12", {.profile = profile, .kernels = true});
    ASSERT_TRUE(outcome.ok()) << outcome.reason;
    ASSERT_TRUE(outcome.kernels);
    EXPECT_EQ(fused_with(outcome, "relu1"), expected);
    // Each node with arithmetic of its own is in some kernel.
    std::set<std::string> told;
    for (const auto& kernel : *outcome.kernels) {
      EXPECT_FALSE(kernel.name.empty());
      told.insert(kernel.nodes.begin(), kernel.nodes.end());
    }
    for (const char* node : {"conv1", "batchnorm1", "conv2", "batchnorm2", "add", "relu2", "averagepool",
                             "globalaveragepool", "gemm", "softmax"})
      EXPECT_TRUE(told.contains(node)) << node;
  }
  EXPECT_FALSE(run_model(*backend, "residual12", {}).kernels);
}

TEST(Onednn, FusesChains) {
  if (!installed("onednn")) GTEST_SKIP() << "not installed: opdiff backend add onednn";
  const auto backend = open("onednn:postops=1");
  ASSERT_TRUE(backend);
  const Outcome outcome = run_model(*backend, "fused_chains", {.kernels = true});
  ASSERT_TRUE(outcome.ok() && outcome.kernels) << outcome.reason;
  for (const auto& [chain, operations] :
       std::map<std::string, std::string>{{"conv1 relu1", "eltwise_relu"},
                                          {"conv2 mul2 add2 tanh2", "binary_mul+binary_add+eltwise_tanh"},
                                          {"conv3 add3 leakyrelu3", "sum+eltwise_relu"},
                                          {"conv4 sigmoid4 mul4", "eltwise_logistic+binary_mul"},
                                          {"batchnorm5 relu5", "fuse_norm_relu"},
                                          {"matmul6 add6 relu6", "binary_add+eltwise_relu"},
                                          {"gemm7 sub7 mul7 elu7", "binary_sub+binary_mul+eltwise_elu"}}) {
    const auto found = std::find_if(outcome.kernels->begin(), outcome.kernels->end(), [&](const Kernel& kernel) {
      return fmt::format("{}", fmt::join(kernel.nodes, " ")) == chain;
    });
    ASSERT_NE(found, outcome.kernels->end()) << chain;
    EXPECT_TRUE(found->name.ends_with(" post:" + operations)) << found->name;
  }
}

// In every release that is installed here.
TEST(Onnxruntime, TellsItsFusionsInEveryRelease) {
  const auto releases = installed_backends("onnxruntime");
  if (releases.empty()) GTEST_SKIP() << "not installed: opdiff backend add onnxruntime";
  for (const auto& release : releases) {
    for (const char* level : {"basic", "extended", "all"}) {
      const auto backend = open(fmt::format("onnxruntime@{}:opt={}", release.version, level));
      ASSERT_TRUE(backend);
      const Outcome outcome = run_model(*backend, "residual12", {.kernels = true});
      ASSERT_TRUE(outcome.ok() && outcome.kernels) << outcome.reason;
      const bool basic = std::string_view(level) == "basic";
      EXPECT_EQ(fused_with(outcome, "batchnorm1"),
                basic ? Nodes({"conv1", "batchnorm1"}) : Nodes({"conv1", "batchnorm1", "relu1"}))
          << release.version << " " << level;
      EXPECT_EQ(fused_with(outcome, "flatten"), Nodes({"flatten"})) << release.version << " " << level;
    }
  }
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
  TrainingStep made = training_step();
  Graph& step = made.built.graph;
  const TensorMap& inputs = made.inputs;
  const Outcome nodes = run_once(*backend, step, inputs);
  ASSERT_TRUE(nodes.ok()) << nodes.reason;
  for (const bool updates : {false, true}) {
    made.built.training.updates = updates;
    const Outcome native = run_once(*backend, step, inputs, {.training = &made.built.training});
    ASSERT_TRUE(native.ok()) << native.reason;
    ASSERT_EQ(native.outputs.size(), nodes.outputs.size());
    for (const auto& [name, tensor] : nodes.outputs)
      EXPECT_LE(largest_difference(native.outputs.at(name), tensor), 1e-5) << name;
  }
  // An inner tensor that only the graph's own backward nodes make.
  step.outputs.push_back({"s/gradient", DType::f32, {}});
  const Outcome inner = run_once(*backend, step, inputs, {.training = &made.built.training});
  ASSERT_TRUE(inner.ok()) << inner.reason;
  EXPECT_TRUE(inner.outputs.contains("s/gradient"));
}

INSTANTIATE_TEST_SUITE_P(All, Frameworks,
                         ::testing::Values("onnxruntime", "onnxruntime:opt=disable",
                                           "onnxruntime:opt=basic,disable=MatMulAddFusion+ConvBNFusion", "torch",
                                           "torch:mkldnn=0,threads=1", "torch:compile=inductor", "onednn",
                                           "onednn:postops=1"),
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
  if (installed("torch")) {
    EXPECT_THAT(open_backend("torch:compile=inductor,disable=NoSuchPart").error().message,
                ::testing::HasSubstr("disable=NoSuchPart: no such part of inductor; known: fuse_attention"));
  }
  EXPECT_THAT(open_backend("nonsense").error().message,
              ::testing::HasSubstr("there is no backend 'nonsense'; there are: faulty"));
}

}  // namespace
}  // namespace opdiff::test
