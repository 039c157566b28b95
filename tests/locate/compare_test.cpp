// The whole comparison on backends in this process, with faults planted in them.
#include "locate/compare.h"

#include <gtest/gtest.h>

#include "../plan/fake_backend.h"
#include "plan/inputs.h"

namespace opdiff {
namespace {

CompareResult compare(const Graph& graph, const std::vector<FakeBackend*>& backends,
                      std::vector<std::pair<std::string, std::size_t>> bindings = {}) {
  const TensorMap inputs = draw_inputs({{"x", {DType::f32, Shape{4, 8}}}}, 1);
  CompareRequest request{graph, inputs, {}, std::move(bindings)};
  for (FakeBackend* backend : backends) {
    request.backends.push_back({backend->info().spec, [backend]() -> Expected<Backend*> { return backend; }, {}});
  }
  Expected<CompareResult> result = compare_model(request, {});
  EXPECT_TRUE(result) << result.error().message;
  return *std::move(result);
}

std::vector<std::string> named(const CompareResult& result) {
  std::vector<std::string> names;
  for (const Culprit& culprit : result.culprits) names.push_back(fmt::format("{}", fmt::join(culprit.nodes, "+")));
  return names;
}

TEST(Compare, HealthyBackendsAreClean) {
  FakeBackend a("a"), b("b");
  const CompareResult result = compare(chain_graph(8), {&a, &b});
  EXPECT_TRUE(result.culprits.empty());
  for (const char* spec : {"a", "b"}) EXPECT_EQ(result.comparison.whole_model.at(spec).reading.error(), 0);
}

TEST(Compare, AKernelFaultInEachNodeIsNamedAndProven) {
  for (int i = 0; i < 6; ++i) {
    FakeBackend healthy("healthy"), faulty("faulty");
    const std::string id = fmt::format("n{}", i);
    faulty.faults[id] = [](Tensor& tensor) {
      for (float& value : tensor.mutable_as<float>()) value *= 1.01F;
    };
    const CompareResult result = compare(chain_graph(6), {&healthy, &faulty});
    ASSERT_EQ(named(result), std::vector<std::string>{id});
    const Culprit& culprit = result.culprits.front();
    EXPECT_EQ(culprit.backend, "faulty");
    EXPECT_EQ(culprit.stage, Stage::kernel);
    EXPECT_TRUE(culprit.substitution.proven());
    EXPECT_GT(culprit.substitution.placebo.error, culprit.substitution.necessary.error);
    EXPECT_EQ(culprit.captured.graph.nodes.size(), 1U);
    EXPECT_EQ(culprit.captured.got.size(), 1U);
    // What comes after has inherited the error and has none of its own.
    for (int after = i + 1; after < 6; ++after) {
      const NodeOutcome& outcome = result.comparison.nodes[static_cast<std::size_t>(after)].backends.at("faulty");
      EXPECT_EQ(outcome.rung(), Rung::exact);
      EXPECT_GT(outcome.inherited_error.value_or(0), 0);
    }
  }
}

TEST(Compare, TwoFaultsAreBothNamed) {
  FakeBackend faulty("faulty");
  faulty.faults["n1"] = [](Tensor& tensor) { tensor.mutable_as<float>()[0] += 1; };
  faulty.faults["n4"] = [](Tensor& tensor) { tensor.mutable_as<float>()[3] += 1; };
  const CompareResult result = compare(chain_graph(8), {&faulty});
  EXPECT_EQ(named(result), (std::vector<std::string>{"n1", "n4"}));
  for (const Culprit& culprit : result.culprits) EXPECT_TRUE(culprit.substitution.proven());
}

TEST(Compare, FaultsOfTwoNodesInOneSegmentAreFusion) {
  for (int i = 0; i + 1 < 8; ++i) {
    FakeBackend faulty("faulty");
    faulty.wrong_together = {{fmt::format("n{}", i), fmt::format("n{}", i + 1)}};
    const CompareResult result = compare(chain_graph(8), {&faulty});
    ASSERT_EQ(named(result), std::vector<std::string>{fmt::format("n{}+n{}", i, i + 1)});
    EXPECT_EQ(result.culprits.front().stage, Stage::fusion_or_rewrite);
    EXPECT_TRUE(result.culprits.front().substitution.proven());
  }
}

TEST(Compare, ALoadErrorOfASegmentIsLocalised) {
  FakeBackend faulty("faulty");
  faulty.failing_together = {{"n2", "n5"}};
  const CompareResult result = compare(chain_graph(8), {&faulty});
  ASSERT_EQ(named(result), std::vector<std::string>{"n2+n3+n4+n5"});
  EXPECT_EQ(result.culprits.front().outcome, OutcomeKind::error);
  EXPECT_TRUE(result.culprits.front().substitution.proven());
}

TEST(Compare, AWrongShapeIsItsOwnStage) {
  FakeBackend faulty("faulty");
  faulty.faults["n2"] = [](Tensor& tensor) { tensor = tensor.reshaped({4, 8, 1}); };
  const CompareResult result = compare(chain_graph(3), {&faulty});
  ASSERT_EQ(named(result), std::vector<std::string>{"n2"});
  EXPECT_EQ(result.culprits.front().stage, Stage::shape);
}

TEST(Compare, ANodeThatIsWrongOnEverySecondRunIsNonDeterminism) {
  FakeBackend faulty("faulty");
  int runs = 0;
  faulty.faults["n2"] = [&](Tensor& tensor) {
    if (++runs % 2 == 0) tensor.mutable_as<float>()[0] += 1;
  };
  const CompareResult result = compare(chain_graph(5), {&faulty});
  ASSERT_EQ(named(result), std::vector<std::string>{"n2"});
  EXPECT_EQ(result.culprits.front().stage, Stage::non_determinism);
}

TEST(Compare, ACrashingNodeIsNamed) {
  FakeBackend faulty("faulty");
  faulty.dying["n3"] = OutcomeKind::crash;
  const CompareResult result = compare(chain_graph(6), {&faulty});
  ASSERT_EQ(named(result), std::vector<std::string>{"n3"});
  EXPECT_EQ(result.culprits.front().outcome, OutcomeKind::crash);
  EXPECT_TRUE(result.culprits.front().substitution.proven());
}

TEST(Compare, ADeathIsNotedWheneverItComes) {
  const auto fault = [](Tensor& tensor) { tensor.mutable_as<float>()[0] += 1; };
  FakeBackend undisturbed("faulty");
  undisturbed.faults["n2"] = fault;
  compare(chain_graph(6), {&undisturbed});
  for (int run = 1; run <= undisturbed.runs; ++run) {
    FakeBackend faulty("faulty");
    faulty.faults["n2"] = fault;
    faulty.killed_in_run = run;
    const CompareResult result = compare(chain_graph(6), {&faulty});
    ASSERT_EQ(result.comparison.deaths.size(), 1U) << run;
    EXPECT_EQ(result.comparison.deaths[0].backend, "faulty");
    EXPECT_EQ(result.comparison.deaths[0].kind, OutcomeKind::crash);
  }
}

TEST(Compare, OurPackingIsNobodysDeath) {
  FakeBackend slow("slow");
  slow.most_isolated = 2;
  const CompareResult result = compare(chain_graph(6), {&slow});
  EXPECT_TRUE(result.comparison.deaths.empty());
  for (const NodeResult& node : result.comparison.nodes) EXPECT_TRUE(node.backends.at("slow").ok());
}

TEST(Compare, ANodeWithoutAReferenceOfWhichAllDieEndsTheRunButLosesNothing) {
  for (const OutcomeKind kind : {OutcomeKind::crash, OutcomeKind::timeout, OutcomeKind::out_of_memory}) {
    Graph graph = chain_graph(6);
    graph.nodes[4].op = "Twice";
    FakeBackend faulty("faulty");
    faulty.faults["n1"] = [](Tensor& tensor) { tensor.mutable_as<float>()[0] += 1; };
    faulty.dying["n4"] = kind;
    const CompareResult result = compare(graph, {&faulty});
    EXPECT_NE(result.comparison.stopped.find("n4"), std::string::npos);
    ASSERT_FALSE(result.comparison.deaths.empty());
    EXPECT_EQ(result.comparison.deaths[0].kind, kind);
    EXPECT_EQ(result.comparison.nodes[1].backends.at("faulty").rung(), Rung::defect);
  }
}

TEST(Compare, ARefusedNodeIsNoDefect) {
  FakeBackend faulty("faulty");
  faulty.dying["n3"] = OutcomeKind::error;
  const CompareResult result = compare(chain_graph(6), {&faulty});
  EXPECT_TRUE(result.culprits.empty());
  ASSERT_EQ(result.failing.size(), 1U);
  EXPECT_EQ(result.failing[0].node, "n3");
}

TEST(Compare, AnAssignmentIsOneMoreRun) {
  FakeBackend healthy("healthy"), faulty("faulty");
  faulty.faults["n3"] = [](Tensor& tensor) { tensor.mutable_as<float>()[0] += 1; };
  const auto wrong = [](const CompareResult& result, const std::string& name) {
    return result.comparison.whole_model.at(name).reading.wrong;
  };
  const CompareResult add = compare(chain_graph(6), {&healthy, &faulty}, {{"Add", 1}});
  EXPECT_TRUE(wrong(add, "healthy with Add=faulty"));
  const CompareResult sigmoid = compare(chain_graph(6), {&healthy, &faulty}, {{"Sigmoid", 1}, {"n5", 1}});
  EXPECT_FALSE(wrong(sigmoid, "healthy with Sigmoid=faulty n5=faulty"));
}

}  // namespace
}  // namespace opdiff
