// Plots by gnuplot, which draws better than we would.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace opdiff {

// As a string of a gnuplot script: nothing in it can end the string.
std::string gnuplot_quoted(std::string text);

// Runs the commands with an SVG terminal of so many pixels and writes `file`. The error says where gnuplot is to be
// had, or what it said.
Expected<void> plot_svg(const std::filesystem::path& file, int width, int height, const std::string& commands);

}  // namespace opdiff
