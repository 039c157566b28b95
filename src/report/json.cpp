#include <nlohmann/json.hpp>

#include "graph/graph_json.h"
#include "report/result.h"

namespace opdiff {
namespace {

using nlohmann::json;

template <class T>
json number_or_null(const std::optional<T>& value) {
  return value ? number_to_json(static_cast<double>(*value)) : json();
}

json known_json(const std::optional<KnownDivergence>& known) {
  return known ? json{{"reason", known->reason}, {"link", known->link}, {"predicate", known->predicate}} : json();
}

json verdict_json(const Verdict& verdict, bool has_reference) {
  const WorstElement& worst = verdict.worst;
  const ClassicFigures& figures = verdict.figures;
  json counts = json::object();
  for (int rung = 0; rung < kRungCount; ++rung) {
    const std::int64_t count = verdict.counts[static_cast<std::size_t>(rung)];
    if (count > 0) counts[std::string(to_string(static_cast<Rung>(rung)))] = count;
  }
  return {{"rung", has_reference ? json(to_string(verdict.rung)) : json()},
          {"profile", verdict.profile},
          {"explanation", verdict.explanation},
          {"warn", verdict.warn},
          {"unproven", verdict.unproven},
          {"excess", number_to_json(verdict.excess)},
          {"z_rms", number_to_json(verdict.z_rms)},
          {"z_rms_limit", number_to_json(verdict.z_rms_limit)},
          {"z_mean", number_to_json(verdict.z_mean)},
          {"z_max", number_to_json(verdict.z_max)},
          {"z_max_limit", number_to_json(verdict.z_max_limit)},
          {"odds", number_to_json(verdict.odds)},
          {"elements", verdict.elements},
          {"unproven_elements", verdict.unproven_elements},
          {"unspecified_elements", verdict.unspecified_elements},
          {"counts", std::move(counts)},
          {"worst",
           {{"index", worst.index},
            {"coordinates", worst.coordinates},
            {"got", number_to_json(worst.got)},
            {"centre", number_to_json(worst.centre)},
            {"radius", number_to_json(worst.radius)},
            {"deviation", number_to_json(worst.deviation)}}},
          {"figures",
           {{"max_absolute", number_to_json(figures.max_absolute)},
            {"mean_absolute", number_to_json(figures.mean_absolute)},
            {"max_relative", number_to_json(figures.max_relative)},
            {"mean_relative", number_to_json(figures.mean_relative)},
            {"max_ulp", number_to_json(figures.max_ulp)},
            {"rmse", number_to_json(figures.rmse)},
            {"psnr", number_to_json(figures.psnr)},
            {"cosine", number_to_json(figures.cosine)},
            {"share_beyond_1e-3", number_to_json(figures.share_beyond_1e3)},
            {"share_beyond_1e-4", number_to_json(figures.share_beyond_1e4)}}},
          {"note", verdict.note}};
}

json node_outcome_json(const NodeOutcome& outcome, bool has_reference) {
  json outputs = json::object();
  for (const auto& [name, verdict] : outcome.outputs) outputs[name] = verdict_json(verdict, has_reference);
  const Verdict* worst = outcome.worst();
  return {{"outcome", to_string(outcome.outcome)},
          {"reason", outcome.reason},
          {"verdict", worst == nullptr ? json() : verdict_json(*worst, has_reference)},
          {"known", known_json(outcome.known)},
          {"outputs", std::move(outputs)},
          {"own_error", worst == nullptr ? json() : number_to_json(outcome.own_error)},
          {"total_error", number_or_null(outcome.total_error)},
          {"inherited_error", number_or_null(outcome.inherited_error)},
          {"wall_ms", number_or_null(outcome.wall_ms)},
          {"peak_bytes", outcome.peak_bytes ? json(*outcome.peak_bytes) : json()}};
}

json reading_json(const Reading& reading) {
  return {{"outcome", to_string(reading.outcome)},
          {"reason", reading.reason},
          {"suspect", reading.wrong},
          {"wrong_shape", reading.wrong_shape},
          {"non_finite_differs", reading.non_finite_differs},
          {"repeats_differ", reading.repeats_differ},
          {"error", number_to_json(reading.error())},
          {"rms", number_to_json(reading.rms)},
          {"max", number_to_json(reading.max)},
          {"worst_output", reading.worst_output}};
}

json whole_json(const WholeModelResult& whole) {
  json result = reading_json(whole.reading);
  result["outputs"] = json::object();
  for (const auto& [name, comparison] : whole.outputs) {
    result["outputs"][name] = {{"rms", number_to_json(comparison.rms)},
                               {"max", number_to_json(comparison.max)},
                               {"suspect", comparison.suspect},
                               {"non_finite_differs", comparison.non_finite_differs},
                               {"max_absolute", number_to_json(comparison.figures.max_absolute)},
                               {"max_relative", number_to_json(comparison.figures.max_relative)}};
  }
  result["classifier"] = json();
  if (whole.classifier) {
    result["classifier"] = {
        {"rows", whole.classifier->rows},
        {"flips", whole.classifier->flips},
        {"flips_inside_noise", whole.classifier->flips_inside_noise},
        {"right", whole.classifier->right ? json(*whole.classifier->right) : json()},
        {"reference_right", whole.classifier->reference_right ? json(*whole.classifier->reference_right) : json()},
        {"smallest_margin", number_to_json(whole.classifier->smallest_margin)}};
  }
  result["contract"] = json();
  if (whole.contract) result["contract"] = {{"elements", whole.contract->elements}, {"broken", whole.contract->broken}};
  result["chained"] = whole.chained ? reading_json(*whole.chained) : json();
  result["explanation"] = whole.explanation;
  result["wall_ms"] = number_or_null(whole.wall_ms);
  return result;
}

json measurement_json(const Measurement& measurement, bool holds) {
  return {{"error", number_to_json(measurement.error)},
          {"wrong", measurement.wrong},
          {"holds", holds},
          {"reason", measurement.reason}};
}

json culprit_json(const Comparison& comparison, const Culprit& culprit, const std::string& file) {
  const Substitution& proof = culprit.substitution;
  return {{"nodes", culprit.nodes},
          {"op", culprit.op},
          {"backend", culprit.backend},
          {"stage", culprit.localised ? json(to_string(culprit.stage)) : json()},
          {"localised", culprit.localised},
          {"pass", culprit.pass},
          {"outcome", to_string(culprit.outcome)},
          {"known", is_known_divergence(comparison, culprit)},
          {"rung", to_string(culprit.rung)},
          {"evidence", culprit.evidence},
          {"necessary", measurement_json(proof.necessary, proof.necessary_holds)},
          {"sufficient", measurement_json(proof.sufficient, proof.sufficient_holds)},
          {"placebo", measurement_json(proof.placebo, proof.placebo_holds)},
          {"proven", proof.proven()},
          {"measured_at", proof.measured_at},
          {"unit", proof.unit},
          {"limit", number_to_json(proof.limit)},
          {"case", file.empty() ? json() : json(file)},
          {"repeat", culprit.repeat}};
}

json pairs_json(const std::vector<CompareResult::NodeOnBackend>& pairs) {
  json list = json::array();
  for (const auto& pair : pairs) list.push_back({{"node", pair.node}, {"backend", pair.backend}});
  return list;
}

}  // namespace

json result_json(const RunRecord& record) {
  const Comparison& comparison = record.result.comparison;
  json backends = json::array();
  for (const BackendInfo& info : comparison.backends) {
    backends.push_back({{"spec", info.spec},
                        {"name", info.name},
                        {"version", info.version},
                        {"build", info.build},
                        {"device", info.device},
                        {"isa", info.isa}});
  }
  json nodes = json::array();
  for (const NodeResult& node : comparison.nodes) {
    json by_backend = json::object();
    for (const auto& [spec, outcome] : node.backends) by_backend[spec] = node_outcome_json(outcome, node.has_reference);
    nodes.push_back({{"name", node.id}, {"op", node.op}, {"backends", std::move(by_backend)}});
  }
  json whole = json::object();
  for (const auto& [name, result] : comparison.whole_model) whole[name] = whole_json(result);
  json culprits = json::array();
  for (std::size_t number = 0; number < record.result.culprits.size(); ++number) {
    culprits.push_back(culprit_json(comparison, record.result.culprits[number], case_of(record, number)));
  }
  json deaths = json::array();
  for (const BackendDeath& death : comparison.deaths) {
    deaths.push_back({{"backend", death.backend}, {"outcome", to_string(death.kind)}, {"reason", death.reason}});
  }
  json reasons = json::array();
  for (const StatusLine& line : record.status) {
    reasons.push_back({{"status", to_string(line.status)}, {"reason", line.reason}});
  }
  return {{"opdiff", record.version},
          {"format", 1},
          {"model", {{"file", record.model_file}, {"sha256", record.model_sha256}}},
          {"inputs", record.inputs_file.empty() ? json() : json(record.inputs_file)},
          {"dimensions", record.dimensions},
          {"mode", record.mode},
          {"seed", record.seed},
          {"backends", std::move(backends)},
          {"status", to_string(worst_status(record.status))},
          {"reasons", std::move(reasons)},
          {"interrupted", comparison.interrupted},
          {"stopped", comparison.stopped.empty() ? json() : json(comparison.stopped)},
          {"deaths", std::move(deaths)},
          {"nodes", std::move(nodes)},
          {"whole_model", std::move(whole)},
          {"culprits", std::move(culprits)},
          {"unconfirmed", pairs_json(record.result.unconfirmed)},
          {"failing", pairs_json(record.result.failing)},
          {"unproven", comparison.unproven},
          {"wall_seconds", record.wall_seconds}};
}

}  // namespace opdiff
