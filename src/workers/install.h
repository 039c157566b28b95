// Makes, binds and removes backends' environments: `opdiff backend add` and `remove`. What is there is
// workers/environment.h's to say.
#pragma once

#include <functional>

#include "workers/environment.h"

namespace opdiff {

struct AddOptions {
  std::string python;  // an interpreter of the user's to bind, untouched
  std::function<void(const std::string&)> say = [](const std::string&) {};  // progress, a line each
};

struct Added {
  Installed installed;
  BackendInfo info;  // what its worker said when it was tried
};

// `requirement` is NAME, NAME==VERSION or NAME@VERSION. Installs with pip as the user configured it, builds a native
// worker, tries it, and only then marks it ready. Two at once wait for each other. On failure nothing usable remains,
// and the error names the log.
Expected<Added> add_backend(const std::string& requirement, const AddOptions& options = {});

// NAME (its binding, or its only environment), NAME==VERSION or NAME@VERSION. Returns what was removed.
Expected<std::vector<std::string>> remove_backend(const std::string& requirement);

// The interpreter of an environment that holds numpy alone, for tests of the Python SDK; made when missing.
Expected<std::filesystem::path> sdk_python(const AddOptions& options = {});

}  // namespace opdiff
