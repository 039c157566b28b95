#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace opdiff {
namespace {

// Length of the valid sequence at the start of `text`, 0 if there is none. Table 3-7 of the Unicode standard.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return length;
}

// Of a valid sequence of two or three bytes.
unsigned code_point(std::string_view sequence) {
  const auto low = [&](std::size_t i) { return static_cast<unsigned>(static_cast<std::uint8_t>(sequence[i]) & 0x3F); };
  const unsigned first = static_cast<std::uint8_t>(sequence[0]);
  return sequence.size() == 2 ? (first & 0x1F) << 6 | low(1) : (first & 0x0F) << 12 | low(1) << 6 | low(2);
}

// C1 controls, line and paragraph separators, and the marks of Unicode's bidirectional algorithm.
bool is_unprintable(unsigned code) {
  return (code >= 0x80 && code <= 0x9F) || code == 0x61C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) {
      result += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return result;
}

std::string escape_controls(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(sequence_length(text), 1);
    const auto first = static_cast<std::uint8_t>(text[0]);
    if (length == 1 && (first < 0x20 || first == 0x7F)) {
      switch (first) {
        case '\n': result += "\\n"; break;
        case '\r': result += "\\r"; break;
        case '\t': result += "\\t"; break;
        default: result += fmt::format("\\x{:02x}", first);
      }
    } else if ((length == 2 || length == 3) && is_unprintable(code_point(text.substr(0, length)))) {
      result += fmt::format("\\u{:04x}", code_point(text.substr(0, length)));
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace opdiff
