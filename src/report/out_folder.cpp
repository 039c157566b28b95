#include "report/out_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/file.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kLargestResult = std::uint64_t{1} << 30;
constexpr const char* kResult = "result.json";
constexpr const char* kSuffixes[] = {".onnx", ".inputs.npz", ".outputs.npz"};

// The cases that an earlier result lists; none where the file is none of ours. What they are called is checked: the
// file may come from anywhere.
std::vector<std::string> cases_listed(const fs::path& result) {
  static const std::regex stem("culprits/[0-9]+-[A-Za-z0-9._-]*");
  const auto text = read_file(result, kLargestResult);
  if (!text) return {};
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("opdiff") || !json.contains("culprits")) return {};
  std::vector<std::string> cases;
  for (const auto& culprit : json["culprits"]) {
    if (!culprit.is_object() || !culprit.contains("case") || !culprit["case"].is_string()) continue;
    std::string listed = culprit["case"].get<std::string>();
    if (std::regex_match(listed, stem)) cases.push_back(std::move(listed));
  }
  return cases;
}

// As base/file.h names them: NAME.PID-COUNT.tmp.
std::vector<fs::path> half_written(const fs::path& folder) {
  static const std::regex result(R"(result\.json\.[0-9]+-[0-9]+\.tmp)");
  static const std::regex of_a_case(R"([0-9]+-[A-Za-z0-9._-]*\.(onnx|npz)\.[0-9]+-[0-9]+\.tmp)");
  std::vector<fs::path> files;
  for (const auto& [where, pattern] : {std::pair(folder, &result), std::pair(folder / "culprits", &of_a_case)}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(where, error)) {
      if (std::regex_match(entry.path().filename().string(), *pattern)) files.push_back(entry.path());
    }
  }
  return files;
}

}  // namespace

Expected<OutFolder> OutFolder::claim(const fs::path& path) {
  OutFolder folder;
  folder.path_ = path;
  std::error_code error;
  for (fs::path missing = path; !missing.empty() && !fs::exists(missing, error); missing = missing.parent_path()) {
    folder.made_.insert(folder.made_.begin(), missing);
  }
  fs::create_directories(path, error);
  if (error) return make_error("--out {}: cannot be made: {}", path.string(), error.message());
  folder.held_.reset(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.held_) return make_error("--out {}: {}", path.string(), std::strerror(errno));
  // A file system that cannot lock is no reason not to write.
  if (flock(folder.held_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return make_error("--out {}: another opdiff is writing into it; wait for its end or name another folder",
                      path.string());
  }
  return folder;
}

OutFolder::~OutFolder() {
  std::error_code not_empty;
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) fs::remove(*made, not_empty);
}

Expected<void> OutFolder::clear(const std::vector<fs::path>& kept) const {
  std::vector<fs::path> files = half_written(path_);
  for (const std::string& listed : cases_listed(path_ / kResult)) {
    for (const char* suffix : kSuffixes) files.push_back(path_ / (listed + suffix));
  }
  files.push_back(path_ / kResult);
  for (const fs::path& file : files) {
    std::error_code error;
    if (std::any_of(kept.begin(), kept.end(), [&](const fs::path& path) { return fs::equivalent(file, path, error); }))
      continue;
    if (!fs::remove(file, error) && error)
      return make_error("{}: cannot be removed: {}", file.string(), error.message());
  }
  std::error_code not_empty;
  fs::remove(path_ / "culprits", not_empty);
  return {};
}

}  // namespace opdiff
