// The models of tests/models/bad: those that are broken without regard to operators are refused here, by a message
// that names the file and what bad/expected.json asks for; the rest is read and left to the shape inference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "graph/onnx_reader.h"
#include "graph/validate.h"

namespace opdiff {
namespace {

Expected<Graph> read_and_validate(const std::string& path) {
  OPDIFF_TRY(Graph graph, read_onnx(path));
  auto valid = validate(graph);
  if (!valid) return with_context(path, valid.error());
  return graph;
}

TEST(BadModels, AreRefusedByName) {
  const std::string folder = std::string(OPDIFF_SOURCE_DIR) + "/tests/models/bad/";
  const auto expected = nlohmann::json::parse(std::ifstream(folder + "expected.json"));
  // The groups of files that need no knowledge of operators.
  const auto is_ours = [](std::string_view name) {
    for (const std::string_view prefix :
         {"cyclic", "duplicate_", "empty", "external_", "initialiser_", "input_2_60", "ir_", "missing_", "no_", "not_",
          "opset_", "shadowed_", "string_", "truncated", "unknown_dtype"})
      if (name.starts_with(prefix)) return true;
    return false;
  };
  int refused = 0;
  for (const auto& [name, entry] : expected.items()) {
    SCOPED_TRACE(name);
    const auto graph = read_and_validate(folder + name);
    if (graph) {
      EXPECT_FALSE(is_ours(name)) << "was read";
      continue;
    }
    ++refused;
    EXPECT_EQ(entry["ends"], "refused") << graph.error().message;
    EXPECT_THAT(graph.error().message, testing::StartsWith(folder + name + ": "));
    const std::string rest = graph.error().message.substr((folder + name).size());
    for (const auto& word : entry["mentions"]) EXPECT_THAT(rest, testing::HasSubstr(word.get<std::string>()));
  }
  EXPECT_GE(refused, 36);
}

TEST(GoodModels, AreRead) {
  for (const char* name : {"residual12.onnx", "mixed_ops.onnx"}) {
    const auto graph = read_and_validate(std::string(OPDIFF_SOURCE_DIR) + "/tests/models/" + name);
    EXPECT_TRUE(graph) << graph.error().message;
  }
}

}  // namespace
}  // namespace opdiff
