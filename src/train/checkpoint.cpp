#include "train/checkpoint.h"

#include <nlohmann/json.hpp>
#include <regex>

#include "base/file.h"
#include "base/npy.h"
#include "base/sha256.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaximumJson = 1u << 24;
constexpr int kFormat = 1;
const char* const kJson = "checkpoint.json";

// Archives that checkpoint.json does not name (or will not, if it could not be written: `archive` is empty then and the
// one that it names stays), and files of ours that a killed run left half-written. The folder is one run's at a time.
void remove_others(const fs::path& folder, std::string archive) {
  if (archive.empty()) {
    const auto before = read_checkpoint(folder);
    if (!before || !*before) return;
    archive = fmt::format("checkpoint-{}.npz", (*before)->step);
  }
  static const std::regex half_written(
      R"((checkpoint-[0-9]+\.npz|checkpoint\.json|curves\.csv|curves\.svg|lockstep\.csv|drift\.csv|trained\.onnx)\.[0-9]+-[0-9]+\.tmp)");
  static const std::regex archives(R"(checkpoint-[0-9]+\.npz)");
  std::error_code ignored;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (std::regex_match(name, half_written) || (std::regex_match(name, archives) && name != archive))
      others.push_back(entry.path());
  }
  for (const fs::path& other : others) fs::remove(other, ignored);
}

}  // namespace

Expected<void> write_checkpoint(const fs::path& folder, const Checkpoint& checkpoint) {
  const std::string archive = fmt::format("checkpoint-{}.npz", checkpoint.step);
  TensorMap tensors = curves_to_tensors(checkpoint.curves);
  for (const auto& [name, tensor] : checkpoint.state) tensors["state/" + name] = tensor;
  OPDIFF_RETURN_IF_ERROR(write_npz(folder / archive, tensors));
  OPDIFF_TRY(const std::string sum, sha256_of_file(folder / archive));
  const nlohmann::json json = {{"format", kFormat},
                               {"archive", archive},
                               {"sha256", sum},
                               {"step", checkpoint.step},
                               {"epoch", checkpoint.epoch},
                               {"place", checkpoint.place},
                               {"made_with", checkpoint.made_with}};
  const auto written =
      write_file_atomically(folder / kJson, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  remove_others(folder, written ? archive : "");
  return written;
}

Expected<std::optional<Checkpoint>> read_checkpoint(const fs::path& folder) {
  const fs::path file = folder / kJson;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return std::nullopt;
  OPDIFF_TRY(const std::string text, read_file(file, kMaximumJson));
  Checkpoint checkpoint;
  std::string archive, sum;
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format") != kFormat)
      return make_error("{}: 'format' is {}; this opdiff reads {}", file.string(), json.at("format").dump(), kFormat);
    archive = json.at("archive");
    sum = json.at("sha256");
    checkpoint.step = json.at("step");
    checkpoint.epoch = json.at("epoch");
    checkpoint.place = json.at("place");
    checkpoint.made_with = json.at("made_with");
  } catch (const nlohmann::json::exception& problem) {
    return make_error("{}: no checkpoint: {}", file.string(), problem.what());
  }
  if (fs::path(archive).filename() != archive) return make_error("{}: 'archive' is {}", file.string(), archive);
  OPDIFF_TRY(const std::string found, sha256_of_file(folder / archive));
  if (found != sum)
    return make_error("{}: is damaged: its SHA-256 is not the one in {}", (folder / archive).string(), kJson);
  OPDIFF_TRY(auto tensors, read_npz(folder / archive));
  for (auto& [name, tensor] : tensors)
    if (name.starts_with("state/")) checkpoint.state[name.substr(6)] = tensor;
  auto curves = curves_from_tensors(tensors);
  if (!curves) return with_context((folder / archive).string(), curves.error());
  checkpoint.curves = *std::move(curves);
  return checkpoint;
}

}  // namespace opdiff
