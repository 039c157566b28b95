// Runs a program that makes an environment (python -m venv, pip, cmake) to its end. Workers are not run by this: see
// workers/process.h.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace opdiff {

struct CommandResult {
  int status = 0;      // 128 + signal when it was killed
  std::string output;  // the end of what it wrote to standard output and error, 64 KB at most
};

struct CommandOptions {
  std::map<std::string, std::optional<std::string>> environment;  // changes; nullopt removes
  std::filesystem::path log;                                      // appended to, when not empty
  std::function<void(std::string_view)> on_line;
};

// The program is looked up on PATH. The error is that it could not be started.
Expected<CommandResult> run_command(const std::vector<std::string>& arguments, const CommandOptions& options = {});

}  // namespace opdiff
