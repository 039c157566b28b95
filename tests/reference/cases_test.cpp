// The reference against right.npz of every defect that was reproduced (tests/cases): values in float64, worked out
// there by other means. The reference rounds every tensor on the way to its dtype, which the noise floor measures.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/npy.h"
#include "graph/onnx_reader.h"
#include "graph/validate.h"
#include "reference/evaluate.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;

void expect_right(const fs::path& folder, const std::string& model, const std::string& prefix) {
  SCOPED_TRACE((folder / model).string());
  auto graph = read_onnx((folder / (model + ".onnx")).string());
  const auto inputs = read_npz((folder / (prefix + "input.npz")).string());
  const auto right = read_npz((folder / (prefix + "right.npz")).string());
  ASSERT_TRUE(graph && inputs && right);
  ASSERT_TRUE(validate(*graph));
  const auto outputs = evaluate_graph(*graph, *inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  const auto floor = noise_floor(*graph, *inputs, 8, 0);
  ASSERT_TRUE(floor) << floor.error().message;
  for (const auto& [name, expected] : *right) {
    ASSERT_EQ(outputs->count(name), 1u) << name;
    const Tensor& got = outputs->at(name);
    ASSERT_EQ(got.shape(), expected.shape()) << name;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      const double allowed = 10 * floor->at(name)[static_cast<std::size_t>(i)] + std::abs(expected.at(i)) * 0x1p-24;
      EXPECT_LE(std::abs(got.at(i) - expected.at(i)), allowed) << name << " " << i;
    }
  }
}

TEST(Cases, ReferenceIsRight) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(OPDIFF_SOURCE_DIR) / "tests/cases")) {
    if (!fs::exists(entry.path() / "case.toml")) continue;
    expect_right(entry.path(), "model", "");
    if (fs::exists(entry.path() / "embedded.onnx")) expect_right(entry.path(), "embedded", "embedded_");
    ++count;
  }
  EXPECT_GE(count, 4);
}

}  // namespace
}  // namespace opdiff
