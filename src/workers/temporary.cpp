#include "workers/temporary.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>

namespace opdiff {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "opdiff-worker-";

FileDescriptor lock_folder(const fs::path& folder) {
  FileDescriptor held(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (held && flock(held.get(), LOCK_EX | LOCK_NB) != 0) held.reset();
  return held;
}

}  // namespace

Expected<TemporaryFolder> TemporaryFolder::make() {
  std::error_code error;
  const fs::path where = fs::temp_directory_path(error);
  if (error) return make_error("there is no folder for temporary files: {}; set TMPDIR", error.message());
  static std::once_flag swept;
  std::call_once(swept, [&] { sweep(where); });
  std::string pattern = (where / kPrefix).string() + "XXXXXX";
  if (!mkdtemp(pattern.data())) {
    return make_error("cannot make a temporary folder in {}: {}", where.string(), strerror(errno));
  }
  TemporaryFolder folder;
  folder.path_ = pattern;
  folder.held_ = lock_folder(folder.path_);
  return folder;
}

void TemporaryFolder::sweep(const fs::path& where) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(where, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    std::error_code ignored;
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(entry.path(), ignored);
    if (ignored || age < std::chrono::minutes(1)) continue;
    if (const auto held = lock_folder(entry.path())) fs::remove_all(entry.path(), ignored);  // else its owner lives
  }
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), held_(std::move(other.held_)) {}

TemporaryFolder& TemporaryFolder::operator=(TemporaryFolder&& other) noexcept {
  if (this != &other) {
    remove();
    path_ = std::exchange(other.path_, {});
    held_ = std::move(other.held_);
  }
  return *this;
}

void TemporaryFolder::remove() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  path_.clear();
  held_.reset();
}

}  // namespace opdiff
