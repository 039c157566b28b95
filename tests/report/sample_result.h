// Comparisons made by hand, for the reports' approved outputs.
#pragma once

#include "report/result.h"

namespace opdiff {

inline Verdict verdict_of(Rung rung, const std::string& explanation = "") {
  Verdict verdict;
  verdict.rung = rung;
  verdict.profile = rung == Rung::exact ? "" : "inner-f32";
  verdict.explanation = explanation;
  verdict.elements = 4;
  verdict.counts[static_cast<std::size_t>(rung)] = 4;
  if (rung == Rung::exact) return verdict;
  verdict.excess = rung == Rung::defect ? 5.5e6 : 0.25;
  verdict.z_rms = 0.6;
  verdict.z_max = 2.5;
  verdict.z_rms_limit = 2;
  verdict.z_max_limit = 8;
  verdict.worst = {2, {0, 2}, 1.25, 1.5, 1e-7, 2e-8};
  verdict.figures.max_absolute = 0.25;
  return verdict;
}

inline NodeOutcome outcome_of(const std::string& tensor, const Verdict& verdict, double wall_ms) {
  NodeOutcome outcome;
  outcome.outputs[tensor] = verdict;
  outcome.own_error = verdict.figures.max_absolute;
  outcome.wall_ms = wall_ms;
  return outcome;
}

// conv -> pool -> softmax on two backends, all well.
inline RunRecord clean_record() {
  RunRecord record;
  record.version = "0.1.0";
  record.model_file = "net.onnx";
  record.model_sha256 = std::string(64, 'a');
  record.inputs_file = "digits.npz";
  record.seed = 7;
  Comparison& comparison = record.result.comparison;
  for (const char* name : {"onnxruntime", "torch"}) {
    BackendInfo info;
    info.spec = info.name = name;
    info.version = std::string(name) == "torch" ? "2.13.0" : "1.32.0";
    info.build = "release";
    info.device = "cpu";
    info.isa = "avx2";
    comparison.backends.push_back(info);
    WholeModelResult whole;
    whole.reading.rms = 0.8;
    whole.reading.max = 2;
    whole.reading.worst_output = "y";
    whole.wall_ms = 1.5;
    comparison.whole_model[name] = whole;
  }
  const std::vector<std::pair<std::string, std::string>> nodes = {
      {"conv1", "Conv"}, {"pool", "AveragePool"}, {"softmax", "Softmax"}};
  for (const auto& [id, op] : nodes) {
    NodeResult node;
    node.id = id;
    node.op = op;
    node.backends["onnxruntime"] = outcome_of(id + "_out", verdict_of(Rung::rounding), 0.125);
    node.backends["torch"] = outcome_of(id + "_out", verdict_of(Rung::exact), 0.25);
    comparison.nodes.push_back(node);
  }
  return record;
}

// The same with a wrong pool on onnxruntime, a warning on torch, and a classifier.
inline RunRecord defect_record() {
  RunRecord record = clean_record();
  Comparison& comparison = record.result.comparison;
  comparison.nodes[1].backends["onnxruntime"] = outcome_of("pool_out", verdict_of(Rung::defect), 0.125);
  comparison.nodes[2].backends["onnxruntime"].inherited_error = 0.125;
  comparison.nodes[0].backends["torch"] = outcome_of("conv1_out", verdict_of(Rung::precision, "bf16 operands"), 0.25);
  WholeModelResult& whole = comparison.whole_model["onnxruntime"];
  whole.reading.wrong = true;
  whole.reading.rms = 412;
  whole.reading.max = 900;
  comparison.whole_model["torch"].classifier = ClassifierResult{100, 1, 1, 98, 99, 0.01};
  Culprit culprit;
  culprit.indices = {1};
  culprit.nodes = {"pool"};
  culprit.op = "AveragePool";
  culprit.backend = "onnxruntime";
  culprit.evidence = "pool_out[0,2]: got 1.25, right 1.5; off by 0.25, any arithmetic allowed here is within 1e-07";
  Substitution& proof = culprit.substitution;
  proof.measured_at = "model outputs";
  proof.unit = "noise floor";
  proof.limit = 3;
  proof.placebo = {412, true, ""};
  proof.necessary = {0.3, false, ""};
  proof.sufficient = {411, true, ""};
  proof.placebo_holds = proof.necessary_holds = proof.sufficient_holds = true;
  record.result.culprits = {culprit};
  return record;
}

// A segment that does not load, a crash, a node nobody knows, an interruption.
inline RunRecord crashed_record() {
  RunRecord record = clean_record();
  Comparison& comparison = record.result.comparison;
  Culprit fused;
  fused.indices = {0, 1};
  fused.nodes = {"conv1", "pool"};
  fused.op = "Conv+AveragePool";
  fused.backend = "onnxruntime";
  fused.stage = Stage::fusion_or_rewrite;
  fused.pass = "FuseA+FuseB";
  fused.outcome = OutcomeKind::error;
  fused.evidence = "the model does not load: node reads a removed tensor";
  fused.substitution.measured_at = "model outputs";
  fused.substitution.unit = "noise floor";
  fused.substitution.limit = 3;
  fused.substitution.placebo = {0.2, false, ""};
  fused.substitution.necessary = {0.3, false, ""};
  fused.substitution.sufficient = {std::numeric_limits<double>::infinity(), true, "the model does not load"};
  fused.substitution.placebo_holds = fused.substitution.necessary_holds = fused.substitution.sufficient_holds = true;
  record.result.culprits = {fused};
  comparison.whole_model["onnxruntime"].reading.outcome = OutcomeKind::error;
  comparison.whole_model["onnxruntime"].reading.reason = "the model does not load";
  NodeOutcome& dead = comparison.nodes[2].backends["torch"];
  dead = {};
  dead.outcome = OutcomeKind::crash;
  dead.reason = "killed by signal 11 (segmentation fault)";
  comparison.nodes[0].has_reference = false;
  comparison.unproven = {"conv1"};
  comparison.interrupted = true;
  return record;
}

inline void finish(RunRecord* record, const Policy& policy = {}) {
  record->status = status_lines(record->result, policy);
  name_repeats(record);
}

}  // namespace opdiff
