// Reads ONNX models (IR versions 3 to 12, opsets 7 to 22) into a Graph; graph/onnx_writer.h is the other way
// and graph/validate.h comes next. Operators need not be known. Whatever cannot be kept (strings, sparse
// tensors, 4- and 8-bit floats, calls of model-local functions) is an error that names it, and so is every
// kind of broken file.
#pragma once

#include <filesystem>
#include <string_view>

#include "graph/graph.h"

namespace opdiff {

inline constexpr int kMinIrVersion = 3;
inline constexpr int kMaxIrVersion = 12;
inline constexpr int kMinOpset = 7;
inline constexpr int kMaxOpset = 22;

// Control characters in names are written out ("\\x1b"; base/utf8.h). External data is read from the model's folder and
// nowhere else.
Expected<Graph> read_onnx(const std::filesystem::path& path);

// `name` stands in front of every message. An empty folder: external data is an error.
Expected<Graph> parse_onnx(std::string_view bytes, const std::filesystem::path& model_folder, std::string_view name);

}  // namespace opdiff
