// The state machine against a world of planted faults: no tensors, only who is wrong with whom.
#include "locate/localise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "graphs.h"

namespace opdiff {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// A backend of which is known: nodes that are wrong alone, and pairs that are wrong, or do not load, in one segment.
struct World {
  Graph graph;
  std::map<int, Rung> wrong;           // nodes alone
  std::set<int> only_here;             // of these: right on fresh inputs
  std::set<int> same_place;            // of these: explained on fresh inputs, with the same worst element
  std::set<int> absorbed;              // of these: the model's outputs do not show it
  std::vector<NodeSet> fused_wrong;    // wrong when all of them share a segment
  std::vector<NodeSet> fused_failing;  // does not load when all of them share a segment
  std::set<std::string> repairing;     // passes without which fused faults vanish
  std::set<int> flaky;
  std::set<int> unproven;  // of those that are wrong: no meta-operator judges them, only another backend differs
  int runs = 0;

  static bool holds(const NodeSet& nodes, const NodeSet& wanted) {
    return std::includes(nodes.begin(), nodes.end(), wanted.begin(), wanted.end());
  }

  Reading read(const std::vector<NodeSet>& segments, bool whole_model) {
    Reading reading;
    ++runs;
    for (const NodeSet& segment : segments) {
      for (const NodeSet& failing : fused_failing) {
        if (holds(segment, failing)) {
          reading.outcome = OutcomeKind::error;
          reading.reason = "load error";
          return reading;
        }
      }
      for (const NodeSet& fused : fused_wrong) reading.wrong |= holds(segment, fused);
      for (const int node : segment) {
        const bool hidden = whole_model && absorbed.count(node) > 0;
        if (wrong.count(node) > 0 && !hidden) reading.wrong = true;
        if (flaky.count(node) > 0 && runs % 3 == 0) reading.wrong = true;
      }
    }
    reading.max = reading.rms = reading.wrong ? 1000 : 0.5;
    reading.worst_output = "y";
    return reading;
  }

  NodeReading alone(int node, NodeInputs inputs, Executor executor) {
    NodeReading reading;
    reading.ratio = 0.3;
    if (executor == Executor::reference || wrong.count(node) == 0) return reading;
    if (same_place.count(node) > 0) reading.outlier = "y[777]";
    if (inputs == NodeInputs::fresh && (only_here.count(node) > 0 || same_place.count(node) > 0)) return reading;
    reading.rung = wrong.at(node);
    reading.ratio = 4;
    reading.evidence = "y[0]: got 2, right 1";
    return reading;
  }

  NodeSet all() const {
    NodeSet nodes;
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) nodes.push_back(i);
    return nodes;
  }

  std::vector<NodeSet> apart(const NodeSet& nodes) const {
    std::vector<NodeSet> segments;
    for (const int node : nodes) segments.push_back({node});
    return segments;
  }

  LocaliseResult locate(int most_in_full = 20) {
    std::vector<NodeOutcome> outcomes(graph.nodes.size());
    LocaliseInput input;
    input.graph = &graph;
    input.backend = "fake";
    input.most_in_full = most_in_full;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      Verdict verdict;
      if (unproven.count(static_cast<int>(i)) > 0) {
        verdict.unproven = true;
        outcomes[i].own_error = 0.5;
      } else if (wrong.count(static_cast<int>(i)) > 0) {
        verdict.rung = wrong.at(static_cast<int>(i));
      }
      outcomes[i].outputs["y"] = verdict;
      input.alone.push_back(&outcomes[i]);
    }
    input.whole = read({all()}, true);
    Probes probes;
    probes.segment = [&](const NodeSet& nodes) { return read({nodes}, false); };
    probes.unfused = [&](const NodeSet& nodes) { return read(apart(nodes), false); };
    probes.fused_against_unfused = [&](const NodeSet& nodes) {
      Reading difference = read({nodes}, false);
      difference.wrong = difference.wrong != read(apart(nodes), false).wrong;
      return difference;
    };
    probes.assembled = [&](const Assignment& assignment) {
      std::vector<NodeSet> segments;
      for (const NodeSet& segment : partition_into_convex_segments(graph, assignment.labels)) {
        const int label = assignment.labels[static_cast<std::size_t>(segment.front())];
        if (assignment.executors[static_cast<std::size_t>(label)] == Executor::backend) segments.push_back(segment);
      }
      return read(segments, true);
    };
    probes.alone = [&](int node, NodeInputs inputs, Executor executor, int) { return alone(node, inputs, executor); };
    probes.unsteady = [&](int node) { return flaky.count(node) > 0; };
    probes.rewritten = [](int) { return std::nullopt; };
    if (!repairing.empty()) {
      probes.passes = {"Alpha", "Beta", "Delta", "Gamma"};
      probes.without_passes = [&](const NodeSet& nodes, const std::vector<std::string>& disabled) {
        const bool repaired = std::any_of(disabled.begin(), disabled.end(),
                                          [&](const std::string& pass) { return repairing.count(pass) > 0; });
        return repaired ? Reading{} : read({nodes}, false);
      };
    }
    return localise(input, probes);
  }
};

std::vector<std::string> named(const LocaliseResult& result) {
  std::vector<std::string> names;
  for (const Culprit& culprit : result.culprits) names.push_back(fmt::format("{}", fmt::join(culprit.nodes, "+")));
  return names;
}

TEST(Localise, NothingOnAHealthyBackend) {
  World world{.graph = line_of(8)};
  const LocaliseResult result = world.locate();
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_EQ(world.runs, 1);  // the whole model, and no search
}

TEST(Localise, AKernelFaultAtEachNodeIsProven) {
  for (int node = 0; node < 8; ++node) {
    World world{.graph = line_of(8), .wrong = {{node, Rung::defect}}};
    const LocaliseResult result = world.locate();
    ASSERT_EQ(named(result), std::vector<std::string>{fmt::format("n{}", node)});
    const Culprit& culprit = result.culprits.front();
    EXPECT_EQ(culprit.stage, Stage::kernel);
    EXPECT_TRUE(culprit.substitution.proven());
    EXPECT_EQ(culprit.substitution.measured_at, "model outputs");
    EXPECT_TRUE(culprit.substitution.placebo.wrong);
    EXPECT_FALSE(culprit.substitution.necessary.wrong);
    EXPECT_TRUE(culprit.substitution.sufficient.wrong);
  }
}

TEST(Localise, AnErrorThatTheOutputsDoNotShowIsProvenAtTheNode) {
  World world{.graph = line_of(8), .wrong = {{3, Rung::defect}}, .absorbed = {3}};
  const LocaliseResult result = world.locate();
  ASSERT_EQ(named(result), std::vector<std::string>{"n3"});
  EXPECT_TRUE(result.culprits.front().substitution.proven());
  EXPECT_EQ(result.culprits.front().substitution.measured_at, "outputs of n3");
}

TEST(Localise, TwoFaultsAreBothNamedAndEachProven) {
  World world{.graph = line_of(8), .wrong = {{2, Rung::unlikely}, {5, Rung::defect}}};
  const LocaliseResult result = world.locate();
  EXPECT_EQ(named(result), (std::vector<std::string>{"n5", "n2"}));  // the worse first
  for (const Culprit& culprit : result.culprits) EXPECT_TRUE(culprit.substitution.proven());
}

TEST(Localise, OfTooManyTheWorstAreLocalisedAndTheOthersListed) {
  World world{.graph = line_of(40)};
  for (int node = 0; node < 40; node += 2) world.wrong[node] = node < 20 ? Rung::unlikely : Rung::defect;
  const int all = (world.locate(100), world.runs);
  world.runs = 0;
  const LocaliseResult result = world.locate(3);
  ASSERT_EQ(result.culprits.size(), 20U);
  for (std::size_t i = 0; i < result.culprits.size(); ++i) {
    const Culprit& culprit = result.culprits[i];
    EXPECT_EQ(culprit.localised, i < 3);
    EXPECT_EQ(culprit.substitution.proven(), i < 3);
    EXPECT_EQ(culprit.rung, i < 10 ? Rung::defect : Rung::unlikely);
    EXPECT_EQ(culprit.evidence, "y[0]: got 2, right 1");
  }
  EXPECT_LE(world.runs, all - 17 * 3);  // three runs of the whole model for each
}

TEST(Localise, UnlikelyIsConfirmedByFreshInputsOrAtTheOutputs) {
  World hidden{.graph = line_of(8), .wrong = {{2, Rung::unlikely}}, .absorbed = {2}};
  EXPECT_EQ(named(hidden.locate()), std::vector<std::string>{"n2"});
  World visible{.graph = line_of(8), .wrong = {{2, Rung::unlikely}}, .only_here = {2}};
  EXPECT_EQ(named(visible.locate()), std::vector<std::string>{"n2"});
  World outlier{.graph = line_of(8), .wrong = {{2, Rung::unlikely}}, .same_place = {2}, .absorbed = {2}};
  EXPECT_EQ(named(outlier.locate()), std::vector<std::string>{"n2"});
  World neither{.graph = line_of(8), .wrong = {{2, Rung::unlikely}}, .only_here = {2}, .absorbed = {2}};
  const LocaliseResult result = neither.locate();
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_EQ(result.unconfirmed, NodeSet{2});
}

TEST(Localise, AnOperatorThatNobodyJudgesIsNamedWhereTheModelIsOffByIt) {
  World world{.graph = line_of(8), .wrong = {{3, Rung::exact}}, .unproven = {3, 5}};
  const LocaliseResult result = world.locate();
  EXPECT_EQ(named(result), std::vector<std::string>{"n3"});
  EXPECT_NE(result.culprits[0].evidence.find("unproven: differs by 0.5"), std::string::npos);
  EXPECT_TRUE(result.culprits[0].substitution.proven());
  World honest{.graph = line_of(8), .unproven = {3}};
  EXPECT_TRUE(honest.locate().culprits.empty());
}

TEST(Localise, AFusionFaultIsTheSmallestSegment) {
  World world{.graph = line_of(12), .fused_wrong = {{5, 6, 7}}, .repairing = {"Beta", "Gamma"}};
  const LocaliseResult result = world.locate();
  ASSERT_EQ(named(result), std::vector<std::string>{"n5+n6+n7"});
  const Culprit& culprit = result.culprits.front();
  EXPECT_EQ(culprit.stage, Stage::fusion_or_rewrite);
  EXPECT_EQ(culprit.pass, "Beta+Gamma");
  EXPECT_TRUE(culprit.substitution.proven());
  EXPECT_FALSE(culprit.substitution.placebo.wrong);  // apart, the same nodes are right
}

TEST(Localise, EveryPairThatFailsTogetherIsFound) {
  for (int first = 0; first < 7; ++first) {
    World world{.graph = line_of(8), .fused_wrong = {{first, first + 1}}};
    EXPECT_EQ(named(world.locate()), std::vector<std::string>{fmt::format("n{}+n{}", first, first + 1)});
  }
}

TEST(Localise, TwoFusionFaultsAndAKernelFaultAtOnce) {
  World world{.graph = line_of(14), .wrong = {{6, Rung::defect}}, .fused_wrong = {{1, 2}, {10, 11}}};
  std::vector<std::string> names = named(world.locate());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"n1+n2", "n10+n11", "n6"}));
}

TEST(Localise, ALoadErrorOfTwoNodesIsLocalisedLikeAWrongValue) {
  World world{.graph = line_of(10), .fused_failing = {{4, 5}}, .repairing = {"Alpha", "Delta"}};
  const LocaliseResult result = world.locate();
  ASSERT_EQ(named(result), std::vector<std::string>{"n4+n5"});
  const Culprit& culprit = result.culprits.front();
  EXPECT_EQ(culprit.outcome, OutcomeKind::error);
  EXPECT_EQ(culprit.evidence, "load error");
  EXPECT_EQ(culprit.stage, Stage::fusion_or_rewrite);
  EXPECT_EQ(culprit.pass, "Alpha+Delta");
  EXPECT_TRUE(culprit.substitution.proven());
  EXPECT_EQ(culprit.substitution.sufficient.error, kInfinite);
}

TEST(Localise, WhatLiesBehindALoadErrorIsFoundToo) {
  World world{.graph = line_of(10), .fused_wrong = {{7, 8}}, .fused_failing = {{2, 3}}};
  std::vector<std::string> names = named(world.locate());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"n2+n3", "n7+n8"}));
}

TEST(Localise, AFlakyNodeIsNonDeterminism) {
  World world{.graph = line_of(6), .flaky = {4}};
  world.runs = 2;  // the whole model is the third run: wrong
  const LocaliseResult result = world.locate();
  ASSERT_EQ(named(result), std::vector<std::string>{"n4"});
  EXPECT_EQ(result.culprits.front().stage, Stage::non_determinism);
}

TEST(Localise, ASumOfHonestErrorsIsExplainedAndNotBlamed) {
  World world{.graph = line_of(6)};
  std::vector<NodeOutcome> outcomes(6);
  LocaliseInput input{.graph = &world.graph, .backend = "fake"};
  for (NodeOutcome& outcome : outcomes) input.alone.push_back(&outcome);
  input.whole.wrong = true;
  Probes probes;
  probes.segment = [&](const NodeSet&) { return input.whole; };
  probes.fused_against_unfused = [](const NodeSet&) { return Reading{}; };
  const LocaliseResult result = localise(input, probes);
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_NE(result.explanation.find("one by one"), std::string::npos);
}

}  // namespace
}  // namespace opdiff
