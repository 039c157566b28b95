// Whole files in and out: reading with a limit, and writing so that a reader (or a crash, or Ctrl-C) never
// sees half a file: a temporary file in the same folder, flushed to disk, then renamed over the target.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace opdiff {

// Regular files only. The error names the file and the reason (or its size and the limit).
Expected<std::string> read_file(const std::filesystem::path& path, std::uint64_t size_limit);

// Exactly bytes [offset, offset + destination size) of a regular file; the error says how long the file
// really is.
Expected<void> read_file_part(const std::filesystem::path& path, std::uint64_t offset, char* destination,
                              std::uint64_t bytes);

Expected<std::uint64_t> regular_file_size(const std::filesystem::path& path);

// Creates missing parent folders.
Expected<void> write_file_atomically(const std::filesystem::path& path, std::string_view bytes);
// The same for writers that need a path: `write` fills the temporary file, which is removed when it fails.
Expected<void> write_file_atomically(const std::filesystem::path& path,
                                     const std::function<Expected<void>(const std::string& temporary)>& write);

// An error when a value of so many bytes would not fit into this machine's memory. For sizes that a file
// claims.
Expected<void> check_fits_in_memory(std::uint64_t bytes);

}  // namespace opdiff
