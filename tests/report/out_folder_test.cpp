#include "report/out_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;

class OutFolderTest : public testing::Test {
 protected:
  OutFolderTest() : folder_(fs::path(testing::TempDir()) / fmt::format("opdiff-out-{}", getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~OutFolderTest() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text = "") {
    ASSERT_TRUE(write_file_atomically(folder_ / name, text));
  }
  bool is_there(const std::string& name) const { return fs::exists(folder_ / name); }

  fs::path folder_;
};

TEST_F(OutFolderTest, OneAtATime) {
  {
    const auto first = OutFolder::claim(folder_);
    ASSERT_TRUE(first) << first.error().message;
    const auto second = OutFolder::claim(folder_);
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("another opdiff"), std::string::npos);
  }
  EXPECT_TRUE(OutFolder::claim(folder_));
}

TEST_F(OutFolderTest, WhatItMadeAndNobodyFilledGoes) {
  {
    ASSERT_TRUE(OutFolder::claim(folder_ / "a/b"));
  }
  EXPECT_FALSE(is_there("a"));
  {
    const auto held = OutFolder::claim(folder_ / "a/b");
    ASSERT_TRUE(held);
    write("a/b/result.json");
  }
  EXPECT_TRUE(is_there("a/b/result.json"));
}

TEST_F(OutFolderTest, ClearsWhatAnEarlierRunWroteAndNothingElse) {
  const std::string listed =
      R"({"opdiff": "0.1.0", "culprits": [{"case": "culprits/1-conv"}, {"case": "culprits/2-pool"},
      {"case": null}, {"case": "culprits/../../elsewhere"}, {"case": "/etc/passwd"}, {"case": "culprits/3-x/../y"}]})";
  write("result.json", listed);
  const std::vector<std::string> ours = {"result.json",
                                         "culprits/1-conv.onnx",
                                         "culprits/1-conv.inputs.npz",
                                         "culprits/1-conv.outputs.npz",
                                         "culprits/2-pool.onnx",
                                         "culprits/4-killed.inputs.npz.123-4.tmp",
                                         "result.json.77-0.tmp"};
  const std::vector<std::string> theirs = {"notes.txt", "culprits/3-mine.onnx", "culprits/1-conv.txt", "other.tmp",
                                           "elsewhere.onnx"};
  for (const auto* names : {&ours, &theirs}) {
    for (const std::string& name : *names)
      if (name != "result.json") write(name);
  }
  write("kept/model.onnx");
  fs::create_hard_link(folder_ / "culprits/2-pool.onnx", folder_ / "kept/pool.onnx");
  const auto held = OutFolder::claim(folder_);
  ASSERT_TRUE(held);
  ASSERT_TRUE(held->clear({folder_ / "kept/pool.onnx", ""}));
  for (const std::string& name : ours) EXPECT_EQ(is_there(name), name == "culprits/2-pool.onnx") << name;
  for (const std::string& name : theirs) EXPECT_TRUE(is_there(name)) << name;
}

TEST_F(OutFolderTest, AForeignResultLosesNoCases) {
  for (const char* text : {"no json", "[1, 2]", R"({"culprits": [{"case": "culprits/1-conv"}]})", R"({"opdiff": 1})"}) {
    write("result.json", text);
    write("culprits/1-conv.onnx");
    const auto held = OutFolder::claim(folder_);
    ASSERT_TRUE(held);
    ASSERT_TRUE(held->clear({}));
    EXPECT_TRUE(is_there("culprits/1-conv.onnx")) << text;
  }
}

}  // namespace
}  // namespace opdiff
