// A subcommand is one file, src/cli/NAME_command.cpp, that defines `void add_NAME_command(CLI::App&, int* status)`; the
// build makes the list of them from the files that are there (commands.cpp.in).
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <cstdio>

#include "base/error.h"
#include "base/utf8.h"

namespace opdiff {

// Adds every subcommand; the one that is called sets *status.
void add_commands(CLI::App& app, int* status);

// Exit statuses (design.md section 6).
inline constexpr int kClean = 0;
inline constexpr int kDefect = 1;
inline constexpr int kCannotRun = 2;
inline constexpr int kBackendDied = 3;

// Prints the error and returns kCannotRun. Its lines are ours; other control characters come from elsewhere.
inline int cannot_run(const Error& error) {
  std::string text;
  std::string_view rest = error.message;
  for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    text += escape_controls(rest.substr(0, end)) + "\n";
  }
  fmt::print(stderr, "opdiff: {}{}\n", text, escape_controls(rest));
  return kCannotRun;
}

// For seeds: CLI11 takes "-1" for a large number, and cuts what is too large.
inline CLI::Validator whole_number() {
  const auto check = [](const std::string& text) {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end ? std::string()
                                               : fmt::format("'{}' is no whole number below 2^64", text);
  };
  return CLI::Validator(check, "");
}

// For measures such as seconds: CLI11's own range lets NaN pass.
inline CLI::Validator number_in(double low, double high) {
  const auto check = [low, high](const std::string& text) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end && value >= low && value <= high
               ? std::string()
               : fmt::format("'{}' is no number from {:g} to {:g}", text, low, high);
  };
  return CLI::Validator(check, fmt::format("{:g} to {:g}", low, high));
}

}  // namespace opdiff
