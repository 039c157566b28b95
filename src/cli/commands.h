// A subcommand is one file, src/cli/NAME_command.cpp, that defines `void add_NAME_command(CLI::App&, int* status)`; the
// build makes the list of them from the files that are there (commands.cpp.in).
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"

namespace opdiff {

// Adds every subcommand; the one that is called sets *status.
void add_commands(CLI::App& app, int* status);

// Exit statuses (design.md section 6).
inline constexpr int kClean = 0;
inline constexpr int kDefect = 1;
inline constexpr int kCannotRun = 2;
inline constexpr int kBackendDied = 3;

// Prints the error and returns kCannotRun.
inline int cannot_run(const Error& error) {
  fmt::print(stderr, "opdiff: {}\n", error.message);
  return kCannotRun;
}

}  // namespace opdiff
