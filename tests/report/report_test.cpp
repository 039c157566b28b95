// Reports against their approved outputs in tests/report/approved; scripts/approve accepts what a run wrote.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/shell.h"
#include "report/console.h"
#include "sample_result.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;

void expect_approved(const std::string& name, const std::string& text) {
  const fs::path approved = fs::path(OPDIFF_SOURCE_DIR) / "tests/report/approved" / name;
  const fs::path received = fs::path(OPDIFF_BINARY_DIR) / "received/tests/report/approved" / name;
  const auto right = read_file(approved, 1 << 20);
  if (right && *right == text) {
    std::error_code ignored;
    fs::remove(received, ignored);
    return;
  }
  ASSERT_TRUE(write_file_atomically(received, text));
  EXPECT_EQ(right.value_or(""), text) << "if this is as it should be: scripts/approve";
}

TEST(Console, Clean) {
  RunRecord record = clean_record();
  finish(&record);
  expect_approved("clean.txt", console_report(record, {}));
}

TEST(Console, CleanSaysWhatWasNotChecked) {
  RunRecord record = clean_record();
  Comparison& comparison = record.result.comparison;
  NodeOutcome& refused = comparison.nodes[0].backends["torch"];
  refused.outcome = OutcomeKind::unsupported;
  refused.reason = "operator Conv";
  comparison.nodes[1].has_reference = false;
  comparison.unproven = {comparison.nodes[1].id};
  comparison.nodes[1].backends["torch"].own_error = 0.25;
  finish(&record);
  const std::string text = console_report(record, {});
  const std::string first = text.substr(0, text.find('\n'));
  EXPECT_EQ(first.rfind("CLEAN: ", 0), 0U) << first;
  EXPECT_NE(first.find("in what could be checked"), std::string::npos) << first;
  EXPECT_NE(text.find("torch does not run 1 of 3 nodes: operator Conv"), std::string::npos) << text;
  EXPECT_NE(text.find("torch differs from onnxruntime by 0.25 at most"), std::string::npos) << text;
  comparison.nodes[1].backends.erase("torch");
  EXPECT_NE(console_report(record, {}).find("only onnxruntime computes it, nothing checks it"), std::string::npos);
  const nlohmann::json json = result_json(record);
  EXPECT_TRUE(json["nodes"][1]["backends"]["onnxruntime"]["verdict"]["rung"].is_null());
}

TEST(Console, DefectInColour) {
  RunRecord record = defect_record();
  finish(&record);
  expect_approved("defect.txt", console_report(record, {.colour = true}));
}

TEST(Console, Details) {
  RunRecord record = defect_record();
  finish(&record);
  expect_approved("details.txt", console_report(record, {.details = true}));
}

TEST(Console, Known) {
  RunRecord record = defect_record();
  KnownDivergence known;
  known.reason = "onnxruntime counts the padding of ceil_mode";
  known.link = "https://example.org/1";
  record.result.comparison.nodes[1].backends["onnxruntime"].known = known;
  finish(&record);
  expect_approved("known.txt", console_report(record, {}));
  record.status.clear();  // --accept known
  EXPECT_EQ(console_report(record, {}).rfind("ACCEPTED: net.onnx: nothing wrong but 1 known divergence\n", 0), 0U);
}

TEST(Console, Crashed) {
  RunRecord record = crashed_record();
  finish(&record);
  expect_approved("crashed.txt", console_report(record, {}));
}

TEST(Console, SuspectWithoutCulprit) {
  RunRecord record = clean_record();
  WholeModelResult& whole = record.result.comparison.whole_model["torch"];
  whole.reading.wrong = true;
  whole.reading.rms = 40;
  whole.explanation = "the backend's own nodes, one by one, are as far from the reference as its whole model";
  finish(&record);
  expect_approved("no_culprit.txt", console_report(record, {}));
}

TEST(Console, FirstScreenStaysOneScreenWithManyCulprits) {
  RunRecord record = defect_record();
  record.result.culprits.resize(200, record.result.culprits.front());
  finish(&record);
  const std::string text = console_report(record, {});
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60);
  EXPECT_NE(text.find("195 culprits more"), std::string::npos);
}

TEST(Json, Defect) {
  RunRecord record = defect_record();
  finish(&record);
  expect_approved("defect.json", result_json(record).dump(1) + "\n");
}

TEST(Json, NonFiniteNumbersAreStrings) {
  RunRecord record = crashed_record();
  finish(&record);
  const nlohmann::json json = nlohmann::json::parse(result_json(record).dump());
  EXPECT_EQ(json["culprits"][0]["sufficient"]["error"], "inf");
  EXPECT_EQ(json["status"], "crashed");
  EXPECT_EQ(json["unproven"][0], "conv1");
}

TEST(Files, ResultAndCasesAreWrittenAndReadBack) {
  const fs::path out = fs::path(testing::TempDir()) / "opdiff report test's";
  fs::remove_all(out);
  RunRecord record = defect_record();
  record.out = out;
  CapturedCase& captured = record.result.culprits.front().captured;
  Node node;
  node.id = "pool";
  node.op = "Relu";
  node.inputs = {"x"};
  node.outputs = {"y"};
  captured.graph.nodes = {node};
  captured.graph.inputs = {{"x", DType::f32, std::vector<Dimension>{{2, ""}}}};
  captured.graph.outputs = {{"y", DType::f32, std::vector<Dimension>{{2, ""}}}};
  captured.inputs["x"] = Tensor::zeros(DType::f32, {2});
  captured.reference["y"] = captured.got["y"] = Tensor::zeros(DType::f32, {2});
  finish(&record);
  ASSERT_TRUE(write_result(record));
  EXPECT_TRUE(fs::exists(out / "culprits/1-pool.onnx"));
  EXPECT_TRUE(fs::exists(out / "culprits/1-pool.inputs.npz"));
  EXPECT_TRUE(fs::exists(out / "culprits/1-pool.outputs.npz"));
  const auto json = nlohmann::json::parse(*read_file(out / "result.json", 1 << 20));
  const std::string repeat = json["culprits"][0]["repeat"];
  EXPECT_EQ(repeat.rfind("opdiff compare '", 0), 0U) << repeat;  // a path with a blank and a quote is quoted
  fs::remove_all(out);
}

TEST(ShellQuoted, OnlyWhereNeeded) {
  EXPECT_EQ(shell_quoted("a/b.onnx"), "a/b.onnx");
  EXPECT_EQ(shell_quoted("faulty:base=(onnxruntime:opt=basic),op=Conv"),
            "'faulty:base=(onnxruntime:opt=basic),op=Conv'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
}

}  // namespace
}  // namespace opdiff
