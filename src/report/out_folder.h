// The folder of --out: one run writes into it at a time, and what an earlier run wrote goes before the new files come.
#pragma once

#include <filesystem>
#include <vector>

#include "workers/wire.h"

namespace opdiff {

class OutFolder {
 public:
  // Makes the folder where needed and holds it (flock) as long as this lives. The error says that another run has it,
  // or why it cannot be made.
  static Expected<OutFolder> claim(const std::filesystem::path& path);
  OutFolder() = default;
  OutFolder(OutFolder&&) noexcept = default;
  OutFolder& operator=(OutFolder&&) noexcept = default;
  ~OutFolder();  // folders that it made and that stayed empty go

  // Removes result.json of an earlier run, the cases that it lists, and half-written files of a run that was killed.
  // Nothing else, and none of `kept` (the model and inputs of this run).
  Expected<void> clear(const std::vector<std::filesystem::path>& kept) const;

 private:
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // outermost first
  FileDescriptor held_;
};

}  // namespace opdiff
