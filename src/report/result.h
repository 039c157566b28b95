// result.json (docs/formats/result.md) and the culprits' cases beside it: everything that a report can be made from.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/status.h"

namespace opdiff {

// What the command line knows besides what was found.
struct RunRecord {
  std::string version;  // of opdiff
  std::string model_file;
  std::string model_sha256;
  std::string inputs_file;                         // empty: drawn from the seed
  std::map<std::string, std::int64_t> dimensions;  // --dim
  std::string mode = "forward", loss, optimiser;   // --mode, --loss, --optimizer
  std::uint64_t seed = 0;
  std::filesystem::path out;  // empty: nothing is written
  double wall_seconds = 0;
  CompareResult result;
  std::vector<StatusLine> status;
};

// "culprits/3-layer1.conv": the culprit's files in `out`, without their suffixes. Empty: it has none.
std::string case_of(const RunRecord& record, std::size_t number);

// Fills Culprit::repeat: on the culprit's own case when it is written to `out`, else on the whole model and one
// backend.
void name_repeats(RunRecord* record);

nlohmann::json result_json(const RunRecord& record);

// Writes culprits/N-NODE.onnx, .inputs.npz, .outputs.npz, then result.json, each atomically.
Expected<void> write_result(const RunRecord& record);

}  // namespace opdiff
