#include "report/result.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/npy.h"
#include "base/shell.h"
#include "graph/onnx_writer.h"

namespace opdiff {
namespace {

// "3-layer1.conv": what is neither letter, digit, dot, dash nor underscore becomes an underscore.
std::string case_stem(std::size_t number, const Culprit& culprit) {
  std::string name = culprit.nodes.front().substr(0, 60);
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
    if (!plain) c = '_';
  }
  return fmt::format("culprits/{}-{}", number + 1, name);
}

bool has_case(const Culprit& culprit) { return !culprit.captured.graph.nodes.empty(); }

}  // namespace

std::string case_of(const RunRecord& record, std::size_t number) {
  const Culprit& culprit = record.result.culprits[number];
  return record.out.empty() || !has_case(culprit) ? "" : case_stem(number, culprit);
}

void name_repeats(RunRecord* record) {
  for (std::size_t number = 0; number < record->result.culprits.size(); ++number) {
    Culprit& culprit = record->result.culprits[number];
    if (!record->out.empty() && has_case(culprit)) {
      const std::string stem = (record->out / case_stem(number, culprit)).string();
      culprit.repeat = fmt::format("opdiff compare {} --backends {} --inputs {}", shell_quoted(stem + ".onnx"),
                                   shell_quoted(culprit.backend), shell_quoted(stem + ".inputs.npz"));
      continue;
    }
    culprit.repeat =
        fmt::format("opdiff compare {} --backends {}", shell_quoted(record->model_file), shell_quoted(culprit.backend));
    if (!record->inputs_file.empty()) culprit.repeat += " --inputs " + shell_quoted(record->inputs_file);
    for (const auto& [name, value] : record->dimensions) {
      culprit.repeat += " --dim " + shell_quoted(fmt::format("{}={}", name, value));
    }
    if (record->mode != "forward") culprit.repeat += " --mode " + record->mode;
    if (record->mode == "step") {
      if (!record->loss.empty()) culprit.repeat += " --loss " + shell_quoted(record->loss);
      culprit.repeat += " --optimizer " + shell_quoted(record->optimiser);
    }
    culprit.repeat += fmt::format(" --seed {}", record->seed);
  }
}

Expected<void> write_result(const RunRecord& record) {
  for (std::size_t number = 0; number < record.result.culprits.size(); ++number) {
    const Culprit& culprit = record.result.culprits[number];
    if (!has_case(culprit)) continue;
    const std::string stem = (record.out / case_stem(number, culprit)).string();
    OPDIFF_RETURN_IF_ERROR(write_onnx_file(culprit.captured.graph, stem + ".onnx"));
    OPDIFF_RETURN_IF_ERROR(write_npz(stem + ".inputs.npz", culprit.captured.inputs));
    std::map<std::string, Tensor> outputs;
    for (const auto& [name, tensor] : culprit.captured.reference) outputs["reference:" + name] = tensor;
    for (const auto& [name, tensor] : culprit.captured.got) outputs["backend:" + name] = tensor;
    OPDIFF_RETURN_IF_ERROR(write_npz(stem + ".outputs.npz", outputs));
  }
  return write_file_atomically(record.out / "result.json", result_json(record).dump(1) + "\n");
}

}  // namespace opdiff
