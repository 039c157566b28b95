#include "base/utf8.h"

#include <gtest/gtest.h>

namespace opdiff {
namespace {

TEST(EscapeControls, WritesOutWhatSteersATerminalOrForgesALine) {
  EXPECT_EQ(escape_controls("a\x1b[31m/b\n"), "a\\x1b[31m/b\\n");
  EXPECT_EQ(escape_controls(std::string("\0\t\r\x7f", 4)), "\\x00\\t\\r\\x7f");
  EXPECT_EQ(escape_controls("\u009b31m \u202e \u2028 \u2066 \u200f"), "\\u009b31m \\u202e \\u2028 \\u2066 \\u200f");
}

TEST(EscapeControls, KeepsTheRest) {
  for (const char* text : {"", "/conv1/Conv_output_0", "größe", "层_1", "\u00a0", "\u200b", "😀", "back\\slash"}) {
    EXPECT_EQ(escape_controls(text), text);
  }
  EXPECT_EQ(escape_controls("\xff\xc2"), "\xff\xc2");  // replace_invalid_utf8 is for these
}

TEST(EscapeControls, IsDoneOnce) {
  const std::string once = escape_controls("\x1b\n\u202e");
  EXPECT_EQ(escape_controls(once), once);
}

}  // namespace
}  // namespace opdiff
