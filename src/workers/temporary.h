// A temporary folder that goes with its owner. An owner that was killed cannot remove it: the next one to make such a
// folder does.
#pragma once

#include <filesystem>

#include "workers/wire.h"

namespace opdiff {

class TemporaryFolder {
 public:
  // Under $TMPDIR or /tmp. Before the first one of a process, those of dead owners are removed.
  static Expected<TemporaryFolder> make();
  TemporaryFolder() = default;
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept;
  ~TemporaryFolder() { remove(); }

  const std::filesystem::path& path() const { return path_; }
  void remove();

  // Folders in `where` that nobody holds and that are older than a minute (a younger one may be about to be held).
  static void sweep(const std::filesystem::path& where);

 private:
  std::filesystem::path path_;
  FileDescriptor held_;  // locked (flock) as long as the owner lives, however it ends
};

}  // namespace opdiff
