// Faults planted into the test worker, whose arithmetic is exact on these numbers, and into onnxruntime if it is there.
#include "workers/faulty.h"

#include <gmock/gmock.h>

#include "workers/environment.h"
#include "workers/graph_edit.h"
#include "workers/open.h"
#include "workers/test_worker.h"

namespace opdiff::test {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Backend> plant(const std::string& options, const std::string& mode = "good", WorkerLimits limits = {}) {
  const auto spec = parse_spec("faulty:base=test," + options);
  if (!spec) {
    ADD_FAILURE() << spec.error().message;
    return nullptr;
  }
  auto backend = plant_fault(*spec, start(mode, limits));
  if (!backend) {
    ADD_FAILURE() << backend.error().message;
    return nullptr;
  }
  return *std::move(backend);
}

std::vector<double> output_of(Backend& backend, const Graph& graph = small_graph()) {
  const Outcome outcome = run_once(backend, graph, small_inputs(), {.profile = true});
  EXPECT_TRUE(outcome.ok()) << outcome.reason;
  for (const auto& [node, time] : outcome.node_ms) EXPECT_EQ(node.find(kFaultMark), std::string::npos) << node;
  return outcome.ok() ? outcome.outputs.at("y").to_doubles() : std::vector<double>{};
}

struct Planted {
  const char* options;
  std::vector<double> expected;
};

class FaultTest : public Workers, public ::testing::WithParamInterface<Planted> {};

// Right: x * w = {1, -4, 9, -4, 10, -18}, y = {1, 0, 9, 0, 10, 0}.
TEST_P(FaultTest, ChangesWhatItSays) {
  const auto backend = plant(GetParam().options);
  ASSERT_TRUE(backend);
  EXPECT_EQ(output_of(*backend), GetParam().expected);
  // With Slice's attributes in place of its inputs no result is expected of this worker, but the graph must be one.
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultTest,
    ::testing::Values(Planted{"node=relu,fault=scale,size=1", {1.5, 0, 13.5, 0, 15, 0}},
                      Planted{"op=Relu,fault=offset,size=0.25", {1.25, 0.25, 9.25, 0.25, 10.25, 0.25}},
                      Planted{"op=Mul,fault=negate", {0, 4, 0, 4, 0, 18}},
                      Planted{"op=Relu,fault=element,index=2,size=-4", {1, 0, 5, 0, 10, 0}},
                      Planted{"op=Relu,fault=element,index=-2,relative=0.5", {1, 0, 9, 0, 15, 0}},
                      Planted{"op=Relu,fault=element,index=-1,size=3", {1, 0, 9, 0, 10, 3}},
                      Planted{"op=Relu,fault=element", {2, 0, 9, 0, 10, 0}},
                      Planted{"op=Relu,fault=row,index=1,size=2", {1, 0, 9, 2, 12, 2}},
                      Planted{"op=Relu,fault=row,axis=1,index=0,size=2", {3, 0, 9, 2, 10, 0}},
                      Planted{"op=Relu,fault=row,axis=1,index=0,count=2,size=2", {3, 2, 9, 2, 12, 0}},
                      Planted{"op=Relu,fault=tail,size=8", {1, 0, 17, 0, 10, 8}},
                      Planted{"op=Relu,fault=tail,count=2,relative=1", {1, 0, 18, 0, 20, 0}},
                      Planted{"op=Mul,fault=drop-channel,index=2", {1, 0, 0, 0, 10, 0}},
                      Planted{"op=Mul,fault=drop-term", {1, 0, 0, 0, 10, 0}},
                      Planted{"op=Mul,fault=drop-term,index=1", {1, 0, 9, 0, 0, 0}},
                      Planted{"op=Mul,fault=drop-term,input=0,index=4", {1, 0, 9, 0, 0, 0}},
                      Planted{"pair=mul+relu,fault=offset", {2, 1, 10, 1, 11, 1}},
                      Planted{"pair=mul+relu,node=mul,fault=offset,size=100", {101, 96, 109, 96, 110, 82}},
                      Planted{"pair=relu+mul,fault=offset", {1, 0, 9, 0, 10, 0}},
                      Planted{"op=Conv,fault=offset", {1, 0, 9, 0, 10, 0}},
                      Planted{"op=Relu,node=mul,fault=offset", {1, 0, 9, 0, 10, 0}},
                      Planted{"op=Relu,fault=stale", {0, 0, 0, 0, 0, 0}}));

TEST_F(Workers, FaultsNeedAnOpsetThatHasThem) {
  Graph graph = small_graph();
  graph.opsets[""] = 9;
  const auto backend = plant("op=Relu,fault=row,size=2");
  int handle = 0;
  // Slice-9 has attributes, which the test worker does not know: it is what is sent that counts.
  EXPECT_TRUE(backend->prepare(graph, {}, &handle).ok());
}

TEST_F(Workers, KernelsOfAddedNodesAreTheFaultyNodes) {
  const auto backend = plant("op=Relu,fault=scale,size=1");
  const Outcome outcome = run_once(*backend, small_graph(), small_inputs(), {.kernels = true});
  ASSERT_TRUE(outcome.ok() && outcome.kernels) << outcome.reason;
  std::vector<std::string> texts;
  for (const auto& kernel : *outcome.kernels)
    texts.push_back(fmt::format("{}({})", kernel.name, fmt::join(kernel.nodes, ", ")));
  EXPECT_EQ(texts, (std::vector<std::string>{"numpy.Mul(mul)", "numpy.Relu(relu)", "numpy.Mul(relu)", "copy()"}));
}

TEST_F(Workers, NotANumberAndRounding) {
  auto backend = plant("op=Relu,fault=nan,index=3");
  const auto values = output_of(*backend);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(values[static_cast<std::size_t>(i)]), i == 3);

  Graph graph = small_graph();
  const TensorMap inputs = {{"x", Tensor::from_doubles(DType::f32, {2, 3}, std::vector<double>{1.001, 0, 0, 0, 0, 0})}};
  backend = plant("op=Mul,fault=round-operand");
  EXPECT_EQ(run_once(*backend, graph, inputs).outputs.at("y").at(0), 1.0);
  backend = plant("op=Mul,fault=round-operand,to=float16");
  EXPECT_EQ(run_once(*backend, graph, inputs).outputs.at("y").at(0), 1.0009765625);
  graph.initialisers["w"] = Tensor::from_doubles(DType::f32, {3}, std::vector<double>{1.001, 1, 1});
  backend = plant("op=Mul,fault=round-operand,input=1");
  EXPECT_EQ(run_once(*backend, graph, small_inputs()).outputs.at("y").at(0), 1.0);
  graph.opsets[""] = 11;
  backend = plant("op=Mul,fault=round-operand");
  EXPECT_THAT(run_once(*backend, graph, inputs).reason, HasSubstr("bfloat16 needs opset 13"));
}

TEST_F(Workers, AttributesAndTransposedWeights) {
  Graph graph = small_graph();
  graph.nodes[1] = {"relu", "LeakyRelu", "", {"m"}, {"y"}, {{"alpha", 0.5f}}};
  auto backend = plant("node=relu,fault=attribute,attribute=alpha,value=0.25");
  EXPECT_EQ(output_of(*backend, graph), (std::vector<double>{1, -1, 9, -1, 10, -4.5}));

  graph.nodes = {{"product", "MatMul", "", {"x", "w"}, {"y"}, {}}};
  graph.initialisers["w"] = Tensor::from_doubles(DType::f32, {3, 3}, std::vector<double>{0, 1, 0, 0, 0, 0, 0, 0, 1});
  backend = plant("op=MatMul,fault=transpose");
  EXPECT_EQ(output_of(*backend, graph), (std::vector<double>{2, 0, 3, -5, 0, -6}));
  backend = plant("op=MatMul,fault=drop-channel,index=2");
  EXPECT_EQ(output_of(*backend, graph), (std::vector<double>{0, 1, 0, 0, -4, 0}));
  graph.initialisers["w"] = Tensor::zeros(DType::f32, {3, 2});
  backend = plant("op=MatMul,fault=transpose");
  EXPECT_THAT(run_once(*backend, graph, small_inputs()).reason,
              HasSubstr("fault 'transpose' does not fit node 'product': the last two dimensions of 'w', of shape "
                        "[3,2], are not equal"));
}

TEST_F(Workers, AnIndexBeyondTheTensorIsRefused) {
  for (const auto& [fault, why] :
       {std::pair("op=Relu,fault=element,index=6", "index=6: 'y' has 6 elements"),
        std::pair("op=Relu,fault=element,index=-7", "index=-7: 'y' has 6 elements"),
        std::pair("op=Relu,fault=nan,index=100", "index=100: 'y' has 6 elements"),
        std::pair("op=Relu,fault=row,index=2", "index=2: 'y' has 2 slices along axis 0"),
        std::pair("op=Relu,fault=row,axis=1,index=3", "index=3: 'y' has 3 slices along axis 1"),
        std::pair("op=Relu,fault=tail,count=4", "index=-4: 'y' has 3 slices along axis -1"),
        std::pair("op=Mul,fault=drop-channel,index=3", "index=3: 'w' has 3 slices along axis 0")}) {
    const auto backend = plant(fault);
    EXPECT_THAT(run_once(*backend, small_graph(), small_inputs()).reason, HasSubstr(why)) << fault;
  }
}

// dm = dy where m > 0 = {1, 0, 1, 0, 1, 0}, dx = dm * w, dw = the column sums of dm * x.
Graph small_gradient() {
  Graph graph = small_graph();
  graph.opsets["opdiff.gradient"] = static_cast<int>(graph.opset());
  graph.inputs.push_back({"dy", DType::f32, std::vector<Dimension>{{2, ""}, {3, ""}}});
  graph.outputs.push_back({"dx", DType::f32, std::vector<Dimension>{{2, ""}, {3, ""}}});
  graph.outputs.push_back({"dw", DType::f32, std::vector<Dimension>{{3, ""}}});
  graph.nodes.push_back({"relu/gradient", "Relu", "opdiff.gradient", {"m", "dy"}, {"dm"}, {}});
  graph.nodes.push_back({"mul/gradient", "Mul", "opdiff.gradient", {"x", "w", "dm"}, {"dx", "dw"}, {}});
  return graph;
}

TensorMap gradient_inputs() {
  TensorMap inputs = small_inputs();
  inputs["dy"] = Tensor::from_doubles(DType::f32, {2, 3}, std::vector<double>{1, 1, 1, 1, 1, 1});
  return inputs;
}

struct PlantedInGradient {
  const char* options;
  std::vector<double> y, dx, dw;
};

class GradientFaultTest : public Workers, public ::testing::WithParamInterface<PlantedInGradient> {};

TEST_P(GradientFaultTest, ChangesWhatItSays) {
  const auto backend = plant(GetParam().options);
  ASSERT_TRUE(backend);
  const Training training{{{"y", "dy"}}, {{"x", "dx"}, {"w", "dw"}}, {"relu/gradient", "mul/gradient"}};
  const Outcome outcome = run_once(*backend, small_gradient(), gradient_inputs(), {.training = &training});
  ASSERT_TRUE(outcome.ok()) << outcome.reason;
  EXPECT_EQ(outcome.outputs.at("y").to_doubles(), GetParam().y);
  EXPECT_EQ(outcome.outputs.at("dx").to_doubles(), GetParam().dx);
  EXPECT_EQ(outcome.outputs.at("dw").to_doubles(), GetParam().dw);
}

const std::vector<double> kRightX = {1, 0, 3, 0, -2, 0}, kRightW = {1, -5, 3}, kNothing(6);

INSTANTIATE_TEST_SUITE_P(
    All, GradientFaultTest,
    ::testing::Values(
        PlantedInGradient{"op=gradient.Conv,fault=negate", kSmallOutput, kRightX, kRightW},
        PlantedInGradient{"op=gradient.Mul,fault=negate", kSmallOutput, {-1, 0, -3, 0, 2, 0}, kRightW},
        PlantedInGradient{"op=gradient.Mul,fault=negate,output=1", kSmallOutput, kRightX, {-1, 5, -3}},
        PlantedInGradient{"op=Mul,fault=negate", {0, 4, 0, 4, 0, 18}, {0, -2, 0, 1, 0, 3}, {-4, 2, -6}},
        PlantedInGradient{"node=mul/gradient,fault=scale,size=1", kSmallOutput, {1.5, 0, 4.5, 0, -3, 0}, kRightW},
        PlantedInGradient{"node=mul/gradient,fault=element,index=1,size=2,output=1", kSmallOutput, kRightX, {1, -3, 3}},
        PlantedInGradient{"node=mul/gradient,fault=row,size=2", kSmallOutput, {3, 2, 5, 0, -2, 0}, kRightW},
        PlantedInGradient{"node=mul/gradient,fault=unsummed,output=1", kSmallOutput, kRightX, {1, 0, 3}},
        PlantedInGradient{"node=mul/gradient,fault=unsummed,output=1,index=-1", kSmallOutput, kRightX, {0, -5, 0}},
        PlantedInGradient{
            "node=mul/gradient,fault=unsummed,axis=-1,index=2", kSmallOutput, {0, 0, 3, 0, 0, 0}, kRightW},
        PlantedInGradient{"node=mul/gradient,fault=mean-for-sum,output=1", kSmallOutput, kRightX, {0.5, -2.5, 1.5}},
        PlantedInGradient{"op=gradient.Relu,fault=kink,size=5", kSmallOutput, {1, -2, 3, 1, -2, 0}, {-3, -3, 3}},
        PlantedInGradient{"op=gradient.Relu,fault=stale", kSmallOutput, kNothing, {0, 0, 0}},
        PlantedInGradient{
            "pair=relu/gradient+mul/gradient,fault=negate,output=1", kSmallOutput, kRightX, {-1, 5, -3}}));

TEST_F(Workers, FaultsOfGradientsSayWhereTheyDoNotFit) {
  const std::pair<const char*, const char*> cases[] = {
      {"op=Mul,fault=unsummed", "it is no gradient"},
      {"op=gradient.Mul,fault=undivided", "it divides by no count"},
      {"op=gradient.Mul,fault=shift-pads", "'pads' pads nothing"},
      {"op=gradient.Mul,fault=negate,output=2", "it gives no output 2"},
      {"op=gradient.Mul,fault=mean-for-sum,axis=2", "its cotangent has no axis 2"},
  };
  for (const auto& [options, reason] : cases) {
    EXPECT_THAT(run_once(*plant(options), small_gradient(), gradient_inputs()).reason, HasSubstr(reason)) << options;
  }
}

TEST_F(Workers, ATransposedWeightOfAGradient) {
  Graph graph = small_gradient();
  graph.initialisers["w"] = Tensor::from_doubles(DType::f32, {3, 3}, std::vector<double>{0, 1, 0, 0, 0, 0, 0, 0, 1});
  graph.nodes = {{"product/gradient", "MatMul", "opdiff.gradient", {"x", "w", "dy"}, {"dx"}, {}}};
  graph.outputs = {{"dx", DType::f32, std::vector<Dimension>{{2, ""}, {3, ""}}}};
  EXPECT_EQ(run_once(*start("good"), graph, gradient_inputs()).outputs.at("dx").to_doubles(),
            (std::vector<double>{1, 0, 1, 1, 0, 1}));
  const auto backend = plant("op=gradient.MatMul,fault=transpose");
  EXPECT_EQ(run_once(*backend, graph, gradient_inputs()).outputs.at("dx").to_doubles(),
            (std::vector<double>{0, 1, 1, 0, 1, 1}));
}

TEST_F(Workers, AFaultTooSmallForItsTypeIsRefused) {
  const auto backend = plant("op=Relu,fault=scale,size=30");
  const Outcome outcome = run_once(*backend, small_graph(), small_inputs());
  EXPECT_EQ(outcome.kind, OutcomeKind::error);
  EXPECT_THAT(outcome.reason, HasSubstr("rounded to float changes nothing"));
}

TEST_F(Workers, StaleShapeAndType) {
  auto backend = plant("op=Mul,fault=stale");
  int handle = 0;
  ASSERT_TRUE(backend->prepare(small_graph(), {}, &handle).ok());
  backend->run(handle, small_inputs());
  const TensorMap others = {{"x", Tensor::zeros(DType::f32, {2, 3})}};
  EXPECT_EQ(backend->run(handle, others).outputs.at("y").to_doubles(), kSmallOutput);
  EXPECT_EQ(backend->run(handle, others).outputs.at("y").to_doubles(), std::vector<double>(6));
  backend = plant("op=Mul,fault=wrong-shape");
  EXPECT_EQ(run_once(*backend, small_graph(), small_inputs()).outputs.at("y").shape(), (Shape{2, 3, 1}));
  backend = plant("op=Mul,fault=wrong-dtype");
  EXPECT_EQ(run_once(*backend, small_graph(), small_inputs()).outputs.at("y").dtype(), DType::f64);
}

TEST_F(Workers, CrashAndHangAreReal) {
  auto backend = plant("op=Relu,fault=crash");
  for (int again = 0; again < 2; ++again) {
    const Outcome outcome = run_once(*backend, small_graph(), small_inputs());
    EXPECT_EQ(outcome.kind, OutcomeKind::crash);
    EXPECT_THAT(outcome.reason, HasSubstr("killed by signal 11"));
  }
  WorkerLimits limits;
  limits.run_seconds = 0.3;
  backend = plant("op=Relu,fault=hang", "good", limits);
  EXPECT_EQ(run_once(*backend, small_graph(), small_inputs()).kind, OutcomeKind::timeout);
  Graph other = small_graph();
  other.nodes[1].op = "Identity";
  limits.run_seconds = 60;
  EXPECT_TRUE(run_once(*plant("op=Relu,fault=crash"), other, small_inputs()).ok());
}

TEST_F(Workers, AFaultOnAFaultyBackendMeetsOnlyTheModelsNodes) {
  // The outer fault adds a Mul behind relu; the inner one is of Mul and must not find it.
  auto inner = plant_fault(*parse_spec("faulty:base=test,op=Mul,fault=offset,size=2"), start("good"));
  ASSERT_TRUE(inner) << inner.error().message;
  const auto both = plant_fault(*parse_spec("faulty:base=(faulty:base=test),op=Relu,fault=negate"), *std::move(inner));
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(output_of(**both), (std::vector<double>{-3, 0, -11, 0, -12, 0}));
}

TEST_F(Workers, FaultySpecsThatAreWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"faulty:op=Conv,fault=scale", "base=SPEC is missing"},
      {"faulty@2:base=torch,op=Conv,fault=scale", "faulty has no versions"},
      {"faulty:base=nobody,op=Conv,fault=scale", "there is no backend 'nobody'"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(open_backend(text).error().message, HasSubstr(message));
  const std::pair<const char*, const char*> planted[] = {
      {"faulty:base=test,op=Conv,fault=evil", "fault=evil is none of scale, offset"},
      {"faulty:base=test,op=Conv", "fault= is none of"},
      {"faulty:base=test,fault=scale", "say where"},
      {"faulty:base=test,op=Conv,fault=scale,size=big", "size=big is no number"},
      {"faulty:base=test,op=Conv,fault=scale,sise=1", "unknown option 'sise'"},
      {"faulty:base=test,pair=a,fault=scale", "pair=a is not of the form"},
      {"faulty:base=test,op=Conv,fault=round-operand,to=int8", "to=int8 is no floating type"},
      {"faulty:base=test,op=Conv,fault=tail,count=0", "count must be at least 1"},
  };
  for (const auto& [text, message] : planted) {
    EXPECT_THAT(plant_fault(*parse_spec(text), start("good")).error().message, HasSubstr(message));
  }
  EXPECT_THAT(fault_table(), HasSubstr("round-operand"));
}

// The same edits must be graphs that a real runtime loads, with its optimiser on.
TEST(FaultsInOnnxRuntime, AreLoadedAndSeen) {
  if (installed_backends("onnxruntime").empty()) GTEST_SKIP() << "not installed: opdiff backend add onnxruntime";
  const auto healthy = open_backend("onnxruntime");
  ASSERT_TRUE(healthy) << healthy.error().message;
  Graph graph = small_graph();
  graph.nodes = {{"product", "MatMul", "", {"x", "w"}, {"m"}, {}}, {"relu", "Relu", "", {"m"}, {"y"}, {}}};
  graph.initialisers["w"] =
      Tensor::from_doubles(DType::f32, {3, 3}, std::vector<double>{1.001, 2, 3, 4, 5, 6, 7, 8, 9.3});
  const TensorMap inputs = {
      {"x", Tensor::from_doubles(DType::f32, {2, 3}, std::vector<double>{1.001, 2, 3, 1.003, 5.01, 6})}};
  for (const std::string fault :
       {"scale", "scale,size=20", "offset", "negate", "element,index=-1", "nan", "row,index=1", "tail", "drop-channel",
        "drop-term", "transpose", "round-operand", "round-operand,to=float16", "stale", "wrong-shape", "wrong-dtype"}) {
    const auto backend = open_backend("faulty:base=onnxruntime,op=MatMul,fault=" + fault);
    ASSERT_TRUE(backend) << backend.error().message;
    for (const int opset : {9, 13, 17, 21}) {
      if (opset < 13 && fault == "round-operand") continue;
      graph.opsets[""] = opset;
      const Outcome right = run_once(**healthy, graph, inputs);
      ASSERT_TRUE(right.ok()) << right.reason;
      const Outcome got = run_once(**backend, graph, inputs);
      ASSERT_TRUE(got.ok()) << fault << ": " << got.reason;
      EXPECT_FALSE(got.outputs.at("y").bit_equal(right.outputs.at("y"))) << fault << " in opset " << opset;
    }
  }
}

// Faults that need a framework's own kernels.
TEST(FaultsOfGradientsInTorch, AreSeen) {
  if (installed_backends("torch").empty()) GTEST_SKIP() << "not installed: opdiff backend add torch";
  const auto shape = [](std::vector<std::int64_t> extents) {
    std::vector<Dimension> result;
    for (const auto extent : extents) result.push_back({extent, ""});
    return result;
  };
  Graph graph;
  graph.opsets = {{"", 17}, {"opdiff.gradient", 17}};
  graph.inputs = {{"x", DType::f32, shape({1, 1, 3, 3})},
                  {"dy", DType::f32, shape({1, 1, 3, 3})},
                  {"dp", DType::f32, shape({1, 1, 1, 1})}};
  graph.initialisers["w"] =
      Tensor::from_doubles(DType::f32, {1, 1, 3, 3}, std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  graph.outputs = {{"dx", DType::f32, shape({1, 1, 3, 3})}, {"dq", DType::f32, shape({1, 1, 3, 3})}};
  graph.nodes = {{"conv/gradient",
                  "Conv",
                  "opdiff.gradient",
                  {"x", "w", "dy"},
                  {"dx"},
                  {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}},
                 {"pool/gradient", "GlobalAveragePool", "opdiff.gradient", {"x", "dp"}, {"dq"}, {}}};
  std::vector<double> counting(9);
  for (std::size_t i = 0; i < 9; ++i) counting[i] = static_cast<double>(i);
  const TensorMap inputs = {{"x", Tensor::from_doubles(DType::f32, {1, 1, 3, 3}, counting)},
                            {"dy", Tensor::from_doubles(DType::f32, {1, 1, 3, 3}, counting)},
                            {"dp", Tensor::from_doubles(DType::f32, {1, 1, 1, 1}, std::vector<double>{18})}};
  const auto healthy = open_backend("torch");
  ASSERT_TRUE(healthy) << healthy.error().message;
  const Outcome right = run_once(**healthy, graph, inputs);
  ASSERT_TRUE(right.ok()) << right.reason;
  EXPECT_EQ(right.outputs.at("dq").to_doubles(), std::vector<double>(9, 2));
  for (const std::string fault :
       {"op=gradient.Conv,fault=shift-pads", "op=gradient.GlobalAveragePool,fault=undivided"}) {
    const auto backend = open_backend("faulty:base=torch," + fault);
    ASSERT_TRUE(backend) << backend.error().message;
    const Outcome got = run_once(**backend, graph, inputs);
    ASSERT_TRUE(got.ok()) << fault << ": " << got.reason;
    const bool padding = fault.find("pads") != std::string::npos;
    EXPECT_EQ(got.outputs.at("dx").bit_equal(right.outputs.at("dx")), !padding);
    EXPECT_EQ(got.outputs.at("dq").at(4), padding ? 2 : 18);
  }
}

}  // namespace
}  // namespace opdiff::test
