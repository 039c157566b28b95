// Files, checksums and UTF-8.
#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/sha256.h"
#include "base/utf8.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = (fs::temp_directory_path() / "opdiff-file-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Files() override { fs::remove_all(folder_); }
  std::ptrdiff_t count() const { return std::distance(fs::directory_iterator(folder_), {}); }

  fs::path folder_;
};

TEST_F(Files, WrittenIsRead) {
  const std::string bytes("a\0b", 3);
  ASSERT_TRUE(write_file_atomically(folder_ / "f", bytes));
  EXPECT_EQ(*read_file(folder_ / "f", 3), bytes);
  ASSERT_TRUE(write_file_atomically(folder_ / "f", ""));
  EXPECT_EQ(*read_file(folder_ / "f", 3), "");
  EXPECT_EQ(count(), 1);
  ASSERT_TRUE(write_file_atomically(folder_ / "a" / "b" / "f", bytes));
  EXPECT_TRUE(fs::exists(folder_ / "a" / "b" / "f"));
}

TEST_F(Files, LimitsAndKindsAreChecked) {
  ASSERT_TRUE(write_file_atomically(folder_ / "f", "1234"));
  EXPECT_THAT(read_file(folder_ / "f", 3).error().message, HasSubstr("has 4 bytes, more than the 3"));
  EXPECT_THAT(read_file(folder_, 3).error().message, HasSubstr("is a folder"));
  EXPECT_THAT(read_file(folder_ / "absent", 3).error().message, HasSubstr("absent: cannot open: No such file"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(read_file(folder_ / "pipe", 3).error().message, HasSubstr("not a regular file"));
  EXPECT_THAT(read_file("/dev/zero", 3).error().message, HasSubstr("not a regular file"));
  char buffer[4];
  EXPECT_TRUE(read_file_part(folder_ / "f", 1, buffer, 3));
  EXPECT_EQ(std::string(buffer, 3), "234");
  EXPECT_THAT(read_file_part(folder_ / "f", 2, buffer, 3).error().message, HasSubstr("outside the file of 4 bytes"));
  EXPECT_FALSE(read_file_part(folder_ / "f", ~std::uint64_t{0}, buffer, 3));
  EXPECT_FALSE(check_fits_in_memory(~std::uint64_t{0}));
  EXPECT_TRUE(check_fits_in_memory(1 << 20));
}

TEST_F(Files, AFailedWriteLeavesNothingAndKeepsTheOld) {
  ASSERT_TRUE(write_file_atomically(folder_ / "f", "old"));
  const auto result = write_file_atomically(folder_ / "f", [](const std::string& temporary) -> Expected<void> {
    EXPECT_TRUE(write_file_atomically(temporary, "half"));
    return make_error("no");
  });
  EXPECT_EQ(result.error().message, "no");
  EXPECT_EQ(*read_file(folder_ / "f", 100), "old");
  EXPECT_EQ(count(), 1);
}

TEST_F(Files, Sha256) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string large(3'000'001, 'x');
  ASSERT_TRUE(write_file_atomically(folder_ / "f", large));
  EXPECT_EQ(*sha256_of_file(folder_ / "f"), sha256(large));
  EXPECT_FALSE(sha256_of_file(folder_ / "absent"));
}

TEST(Utf8, ValidAndInvalid) {
  for (const char* text : {"", "abc", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
    EXPECT_EQ(replace_invalid_utf8(text), text);
  }
  // A lone continuation, a lone lead, overlong forms, a surrogate, beyond U+10FFFF, truncated.
  for (const char* text :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xe2\x82"}) {
    EXPECT_FALSE(is_valid_utf8(text));
    EXPECT_TRUE(is_valid_utf8(replace_invalid_utf8(text)));
  }
  EXPECT_EQ(replace_invalid_utf8("a\xff"
                                 "b"),
            "a\xEF\xBF\xBD"
            "b");
}

TEST_F(Files, WhatIsBehindALinkIsWritten) {
  ASSERT_TRUE(write_file_atomically(folder_ / "f", "old"));
  std::filesystem::create_symlink(folder_ / "f", folder_ / "link");
  ASSERT_TRUE(write_file_atomically(folder_ / "link", "new"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(*read_file(folder_ / "f", 100), "new");
}

TEST_F(Files, ADeviceStaysADevice) {
  ASSERT_TRUE(write_file_atomically("/dev/null", "1234"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace opdiff
