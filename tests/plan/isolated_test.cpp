#include "plan/isolated.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "fake_backend.h"
#include "plan/inputs.h"

namespace opdiff {
namespace {

struct Checked {
  Expected<TensorMap> outputs;
  Comparison comparison;
};

Checked check(const Graph& graph, const std::vector<FakeBackend*>& backends, CompareOptions options = {}) {
  Checked run;
  std::vector<BackendSource> sources;
  for (FakeBackend* backend : backends) {
    run.comparison.backends.push_back(backend->info());
    sources.push_back([backend]() -> Expected<Backend*> { return backend; });
  }
  const TensorMap inputs = draw_inputs({{"x", {DType::f32, Shape{4, 8}}}}, 1);
  run.outputs = check_nodes(graph, inputs, sources, options, &run.comparison);
  return run;
}

TEST(Isolated, AHealthyBackendIsExactAndGetsAllNodesInOneBatch) {
  FakeBackend backend("fake");
  const Checked run = check(chain_graph(10), {&backend});
  ASSERT_TRUE(run.outputs) << run.outputs.error().message;
  ASSERT_EQ(run.comparison.nodes.size(), 10U);
  for (const NodeResult& node : run.comparison.nodes) {
    const NodeOutcome& outcome = node.backends.at("fake");
    EXPECT_TRUE(outcome.ok());
    EXPECT_EQ(outcome.rung(), Rung::exact);
    EXPECT_EQ(outcome.wall_ms, 0.5);
  }
  EXPECT_EQ(backend.sizes, std::vector<std::size_t>{10});
  EXPECT_EQ(backend.open_graphs(), 0U);
}

TEST(Isolated, AFaultIsSeenAtItsNodeOnly) {
  FakeBackend healthy("healthy"), faulty("faulty");
  faulty.faults["n3"] = [](Tensor& tensor) { tensor.mutable_as<float>()[5] += 0.5F; };
  const Checked run = check(chain_graph(8), {&healthy, &faulty});
  for (const NodeResult& node : run.comparison.nodes) {
    EXPECT_EQ(node.backends.at("healthy").rung(), Rung::exact);
    EXPECT_EQ(node.backends.at("faulty").rung(), node.id == "n3" ? Rung::defect : Rung::exact) << node.id;
  }
  EXPECT_NEAR(run.comparison.nodes[3].backends.at("faulty").own_error, 0.5, 1e-6);
}

TEST(Isolated, SmallBatchesAndManyThreadsChangeNothing) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{600}, std::size_t{1} << 20}) {
    for (const int threads : {1, 4}) {
      FakeBackend faulty("faulty");
      faulty.faults["n3"] = [](Tensor& tensor) { tensor.mutable_as<float>()[5] += 0.5F; };
      const Checked run = check(chain_graph(8), {&faulty}, {.threads = threads, .batch_bytes = bytes});
      EXPECT_EQ(run.comparison.nodes[3].backends.at("faulty").rung(), Rung::defect);
      EXPECT_EQ(run.comparison.nodes[4].backends.at("faulty").rung(), Rung::exact);
      if (bytes == 1) {
        EXPECT_EQ(faulty.sizes.size(), 8U);
      }
    }
  }
}

TEST(Isolated, OneDyingNodeDoesNotHideTheOthers) {
  for (const OutcomeKind kind :
       {OutcomeKind::crash, OutcomeKind::error, OutcomeKind::timeout, OutcomeKind::out_of_memory}) {
    FakeBackend backend("fake");
    backend.dying["n6"] = kind;
    const Checked run = check(chain_graph(9), {&backend});
    for (const NodeResult& node : run.comparison.nodes) {
      EXPECT_EQ(node.backends.at("fake").outcome, node.id == "n6" ? kind : OutcomeKind::ok);
    }
    EXPECT_EQ(run.comparison.nodes[6].backends.at("fake").reason, "died in n6");
  }
}

TEST(Isolated, AnUnsupportedNodeIsReportedWithoutHalving) {
  FakeBackend backend("fake");
  backend.unsupported = {"n2"};
  const Checked run = check(chain_graph(5), {&backend});
  EXPECT_EQ(run.comparison.nodes[2].backends.at("fake").outcome, OutcomeKind::unsupported);
  EXPECT_TRUE(run.comparison.nodes[3].backends.at("fake").ok());
  EXPECT_EQ(backend.sizes.size(), 1U);
}

TEST(Isolated, AnUnknownOperatorIsComparedBetweenBackends) {
  Graph graph = chain_graph(4);
  graph.nodes[2].op = "Twice";
  FakeBackend first("first"), second("second"), lacking("lacking");
  lacking.unsupported = {"n2"};
  second.faults["n2"] = [](Tensor& tensor) { tensor.mutable_as<float>()[0] += 0.25F; };
  const Checked run = check(graph, {&lacking, &first, &second});
  ASSERT_TRUE(run.outputs) << run.outputs.error().message;
  EXPECT_EQ(run.comparison.unproven, std::vector<std::string>{"n2"});
  EXPECT_EQ(run.comparison.nodes[2].backends.at("first").own_error, 0);
  EXPECT_NEAR(run.comparison.nodes[2].backends.at("second").own_error, 0.25, 1e-6);
  EXPECT_TRUE(run.comparison.nodes[2].backends.at("second").worst()->unproven);
  EXPECT_LT(run.comparison.nodes[2].backends.at("second").rung(), Rung::unlikely);
}

TEST(Isolated, AnOperatorThatNobodyKnowsIsAnErrorWithItsName) {
  Graph graph = chain_graph(4);
  graph.nodes[2].op = "Mystery";
  FakeBackend backend("fake");
  backend.unsupported = {"n2"};
  const Checked run = check(graph, {&backend});
  ASSERT_FALSE(run.outputs);
  EXPECT_NE(run.outputs.error().message.find("n2"), std::string::npos);
  EXPECT_NE(run.outputs.error().message.find("Mystery"), std::string::npos);
}

TEST(Isolated, AnInterruptionLeavesWhatWasDone) {
  std::atomic<bool> interrupted{false};
  FakeBackend backend("fake");
  backend.faults["n2"] = [&](Tensor&) { interrupted = true; };
  const Checked run = check(chain_graph(8), {&backend}, {.batch_bytes = 1, .interrupted = &interrupted});
  ASSERT_TRUE(run.outputs);
  EXPECT_TRUE(run.comparison.interrupted);
  EXPECT_EQ(run.comparison.nodes[1].backends.at("fake").rung(), Rung::exact);
  EXPECT_EQ(run.comparison.nodes[7].backends.count("fake"), 0U);
}

TEST(Isolated, IdenticalNodesOnIdenticalInputsRunOnce) {
  Graph graph = chain_graph(1);
  for (int i = 1; i < 4; ++i) {
    Node twin = graph.nodes[0];
    twin.id = fmt::format("twin{}", i);
    twin.outputs = {fmt::format("u{}", i)};
    graph.nodes.push_back(twin);
    graph.outputs.push_back({twin.outputs[0], DType::f32, std::nullopt});
  }
  FakeBackend backend("fake");
  const Checked run = check(graph, {&backend});
  EXPECT_EQ(backend.sizes, std::vector<std::size_t>{1});
  for (const NodeResult& node : run.comparison.nodes) EXPECT_EQ(node.backends.at("fake").outputs.size(), 1U);
}

}  // namespace
}  // namespace opdiff
