// opdiff compare --profile: what a node's memory is said to be, on the reference and on the frameworks that are
// installed. A convolution needs its output at least, and no multiple of it that would mean another thing was counted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "workers/environment.h"

namespace opdiff {
namespace {

constexpr std::int64_t kConvOutput = 32 * 6 * 28 * 28 * 4;  // bytes of LeNet-5's conv1 with batch=32

class Profile : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (!std::filesystem::exists(OPDIFF_BINARY_DIR "/libopdiff_peak.so")) GTEST_SKIP() << "a build with a sanitizer";
    if (name != "reference" && installed_backends(name).empty()) {
      GTEST_SKIP() << "not installed: opdiff backend add " << name;
    }
  }

  static nlohmann::json nodes(const std::string& options) {
    const std::string file =
        (std::filesystem::path(testing::TempDir()) / fmt::format("opdiff-profile-{}", getpid())).string();
    const std::string command = fmt::format(
        "{}/opdiff compare {}/examples/lenet5/lenet5.onnx --dim batch=32 --threads 1 --json --backends {} > {}",
        OPDIFF_BINARY_DIR, OPDIFF_SOURCE_DIR, std::string(GetParam()) + options, file);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    const auto text = read_file(file, 1 << 24);
    std::filesystem::remove(file);
    return nlohmann::json::parse(text ? *text : "{}", nullptr, false)["nodes"];
  }
};

TEST_P(Profile, EveryNodeHasATimeAndAPeak) {
  const nlohmann::json measured = nodes(" --profile");
  ASSERT_EQ(measured.size(), 13U);
  for (const auto& node : measured) {
    const auto& result = node["backends"].front();
    EXPECT_TRUE(result["wall_ms"].is_number()) << node["name"];
    ASSERT_TRUE(result["peak_bytes"].is_number_integer()) << node["name"];
    if (node["name"] == "conv1") {
      EXPECT_GE(result["peak_bytes"], kConvOutput);
      EXPECT_LT(result["peak_bytes"], 100 * kConvOutput);
    }
  }
}

TEST_P(Profile, WithoutItThereIsNoPeak) {
  const nlohmann::json measured = nodes("");
  ASSERT_EQ(measured.size(), 13U);
  for (const auto& node : measured) EXPECT_TRUE(node["backends"].front()["peak_bytes"].is_null()) << node["name"];
}

INSTANTIATE_TEST_SUITE_P(Backends, Profile, testing::Values("reference", "onnxruntime", "torch", "onednn"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace opdiff
