#include "report/status.h"

#include <gtest/gtest.h>

#include <limits>

#include "sample_result.h"

namespace opdiff {
namespace {

RunStatus status_of(const RunRecord& record, const Policy& policy = {}) {
  return worst_status(status_lines(record.result, policy));
}

TEST(Status, CulpritsFailAndWarningsDoNot) {
  EXPECT_EQ(status_of(clean_record()), RunStatus::clean);
  EXPECT_EQ(status_of(defect_record()), RunStatus::defect);
  RunRecord warning = clean_record();
  warning.result.comparison.nodes[0].backends["torch"] =
      outcome_of("y", verdict_of(Rung::precision, "bf16 operands"), 1);
  warning.result.unconfirmed = {{"conv1", "torch"}};
  EXPECT_EQ(status_of(warning), RunStatus::clean);
}

TEST(Status, FailOnAndAccept) {
  RunRecord record = clean_record();
  record.result.comparison.nodes[0].backends["torch"] =
      outcome_of("y", verdict_of(Rung::precision, "bf16 operands"), 1);
  EXPECT_EQ(status_of(record, {.fail_on = Rung::precision}), RunStatus::defect);
  EXPECT_EQ(status_of(record, {.fail_on = Rung::convention}), RunStatus::clean);
  EXPECT_EQ(status_of(record, {.fail_on = Rung::precision, .accept = {{Rung::precision, "bf16"}}}), RunStatus::clean);
  EXPECT_EQ(status_of(record, {.fail_on = Rung::precision, .accept = {{Rung::precision, "tf32"}}}), RunStatus::defect);
  EXPECT_EQ(status_of(record, {.fail_on = Rung::precision, .accept = {{Rung::precision, "conv1"}}}), RunStatus::clean);
}

TEST(Status, ASuspectModelWithoutACulpritIsNoProofButFailsWhenAskedFor) {
  RunRecord record = clean_record();
  record.result.comparison.whole_model["torch"].reading.wrong = true;
  EXPECT_EQ(status_of(record), RunStatus::clean);
  EXPECT_EQ(status_of(record, {.fail_on = Rung::unlikely}), RunStatus::defect);
  EXPECT_EQ(status_of(record, {.fail_on = Rung::defect}), RunStatus::clean);
}

TEST(Status, ASuspectModelOfAnotherShapeOrWithOtherInfinitiesIsADefect) {
  for (const bool shape : {true, false}) {
    RunRecord record = clean_record();
    Reading& reading = record.result.comparison.whole_model["torch"].reading;
    reading.wrong = true;
    (shape ? reading.wrong_shape : reading.non_finite_differs) = true;
    reading.reason = shape ? "y: [2,3], right [3,2]" : "";
    const auto lines = status_lines(record.result, {});
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0].status, RunStatus::defect);
    EXPECT_EQ(lines[0].reason.rfind("whole model on torch: ", 0), 0U) << lines[0].reason;
    // Where somebody is blamed for it, it is that one's.
    RunRecord blamed = defect_record();
    blamed.result.comparison.whole_model["onnxruntime"].reading = reading;
    blamed.result.comparison.whole_model["torch with Conv=onnxruntime"].reading = reading;
    EXPECT_EQ(status_lines(blamed.result, {}).size(), 1U);
  }
}

TEST(Status, ADeathThatNoNodeShowsIsListed) {
  RunRecord record = defect_record();
  record.result.comparison.deaths = {{"torch", OutcomeKind::crash, "killed by signal 9"},
                                     {"torch", OutcomeKind::crash, "killed by signal 9"}};
  const auto lines = status_lines(record.result, {});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].status, RunStatus::crashed);
  EXPECT_EQ(lines[0].reason, "torch: crash (2 times in all): killed by signal 9");
  EXPECT_EQ(lines[1].status, RunStatus::defect);
  // Told once, with the node.
  record.result.comparison.nodes[0].backends["torch"].outcome = OutcomeKind::crash;
  EXPECT_EQ(status_lines(record.result, {}).size(), 2U);
}

TEST(Status, ARunThatStoppedListsTheDeathAndWhatIsProven) {
  RunRecord record = defect_record();
  record.result.culprits.clear();
  record.result.comparison.whole_model.clear();
  record.result.comparison.stopped = "node 'erf' (Erf): nobody computes it";
  record.result.comparison.deaths = {{"torch", OutcomeKind::timeout, "no answer within 1 s"}};
  std::vector<RunStatus> found;
  for (const StatusLine& line : status_lines(record.result, {})) found.push_back(line.status);
  EXPECT_EQ(found, (std::vector<RunStatus>{RunStatus::crashed, RunStatus::defect, RunStatus::cannot_run}));
}

TEST(Status, KnownDivergencesAreNotCleanUnlessAccepted) {
  KnownDivergence known;
  known.op = "AveragePool";
  known.reason = "counts otherwise";
  known.link = "https://example.org/1";
  RunRecord record = defect_record();
  record.result.comparison.nodes[1].backends["onnxruntime"].known = known;
  EXPECT_TRUE(is_known_divergence(record.result.comparison, record.result.culprits[0]));
  EXPECT_EQ(status_of(record), RunStatus::defect);
  EXPECT_EQ(status_of(record, {.accept_known = true}), RunStatus::clean);
  record.result.culprits[0].nodes = {"conv1", "pool"};
  EXPECT_EQ(status_of(record, {.accept_known = true}), RunStatus::defect) << "conv1 is not known";
  EXPECT_EQ(status_of(defect_record(), {.accept_known = true}), RunStatus::defect);

  RunRecord unconfirmed = clean_record();
  unconfirmed.result.comparison.nodes[1].backends["onnxruntime"].known = known;
  EXPECT_EQ(status_of(unconfirmed), RunStatus::defect);
  EXPECT_NE(status_lines(unconfirmed.result, {})[0].reason.find("known divergence: counts otherwise"),
            std::string::npos);
  EXPECT_EQ(status_of(unconfirmed, {.accept_known = true}), RunStatus::clean);
}

TEST(Status, ADeathOutranksADefectAndBothAreListed) {
  RunRecord record = defect_record();
  NodeOutcome& outcome = record.result.comparison.nodes[0].backends["torch"];
  for (const OutcomeKind kind : {OutcomeKind::crash, OutcomeKind::timeout, OutcomeKind::out_of_memory}) {
    outcome.outcome = kind;
    const auto lines = status_lines(record.result, {});
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0].status, RunStatus::crashed);
    EXPECT_EQ(lines[1].status, RunStatus::defect);
  }
}

TEST(Status, UnsupportedIsNoFailureUnlessItIsAll) {
  RunRecord record = clean_record();
  auto& nodes = record.result.comparison.nodes;
  nodes[0].backends["torch"].outcome = OutcomeKind::unsupported;
  EXPECT_EQ(status_of(record), RunStatus::clean);
  for (NodeResult& node : nodes) node.backends["torch"].outcome = OutcomeKind::unsupported;
  EXPECT_EQ(status_of(record), RunStatus::cannot_run);
}

TEST(Status, ABackendWithoutAnyGradientCannotRun) {
  RunRecord record = clean_record();
  auto& nodes = record.result.comparison.nodes;
  nodes[1].backward = nodes[2].backward = true;
  nodes[1].backends["torch"].outcome = OutcomeKind::unsupported;
  EXPECT_EQ(status_of(record), RunStatus::clean);
  nodes[2].backends["torch"].outcome = OutcomeKind::unsupported;
  EXPECT_EQ(status_of(record), RunStatus::cannot_run);
}

TEST(Status, AnErrorAloneCannotRunAndADefectOutranksIt) {
  RunRecord record = clean_record();
  record.result.comparison.nodes[0].backends["torch"].outcome = OutcomeKind::error;
  EXPECT_EQ(status_of(record), RunStatus::cannot_run);
  RunRecord both = defect_record();
  both.result.comparison.nodes[0].backends["torch"].outcome = OutcomeKind::error;
  EXPECT_EQ(status_of(both), RunStatus::defect);
}

TEST(Status, TheUsersContractAndAnInterruption) {
  RunRecord record = clean_record();
  record.result.comparison.whole_model["torch"].contract = ContractResult{100, 1};
  EXPECT_EQ(status_of(record), RunStatus::defect);
  RunRecord stopped = clean_record();
  stopped.result.comparison.interrupted = true;
  EXPECT_EQ(status_of(stopped), RunStatus::cannot_run);
}

}  // namespace
}  // namespace opdiff
