// SHA-256 of files and bytes as 64 hexadecimal digits: models in results and caches are named by it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"

namespace opdiff {

std::string sha256(std::string_view bytes);
// Reads the file in pieces.
Expected<std::string> sha256_of_file(const std::filesystem::path& path);

}  // namespace opdiff
