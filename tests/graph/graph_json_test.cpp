// The JSON graph object: what the engine writes the worker reads back, and broken objects are errors.
#include "graph/graph_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sample_graphs.h"

namespace opdiff {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(GraphJson, RoundTripKeepsEverything) {
  const Graph graph = testing_graphs::every_kind_of_attribute();
  ArenaBuilder arena;
  const json object = json::parse(graph_to_json(graph, arena).dump());
  const auto back = graph_from_json(object, arena.to_bytes());
  ASSERT_TRUE(back) << back.error().message;
  testing_graphs::expect_same(graph, *back);
}

TEST(GraphJson, TensorsAreAlignedAndSharedBytesPlacedOnce) {
  ArenaBuilder arena;
  const Tensor a = Tensor::zeros(DType::f32, {3});
  EXPECT_EQ(arena.add(a), 0u);
  EXPECT_EQ(arena.add(Tensor::from_int64s(DType::i64, {1}, std::vector<std::int64_t>{7})), 64u);
  EXPECT_EQ(arena.add(a.reshaped({1, 3})), 0u);
  EXPECT_EQ(arena.add(std::string("model")), 128u);
  EXPECT_EQ(arena.size(), 133u);
  const auto bytes = arena.to_bytes();
  EXPECT_EQ(bytes[64], std::byte{7});
  EXPECT_EQ(bytes[128], std::byte{'m'});
  EXPECT_EQ(bytes[100], std::byte{0});
}

TEST(GraphJson, NonFiniteNumbersAreStrings) {
  EXPECT_EQ(number_to_json(INFINITY), "inf");
  EXPECT_EQ(number_to_json(-INFINITY), "-inf");
  EXPECT_EQ(number_to_json(NAN), "nan");
  EXPECT_EQ(*number_from_json("-inf"), -INFINITY);
  EXPECT_TRUE(std::isnan(*number_from_json("nan")));
  EXPECT_FALSE(number_from_json("infinity"));
}

TEST(GraphJson, WireExampleIsRead) {
  const json object = json::parse(R"({"name": "n", "opset": 17, "opsets": {"": 17},
     "inputs":  [{"name": "x", "dtype": "float", "shape": ["batch", 1, null]}],
     "outputs": [{"name": "y", "dtype": "float", "shape": null}],
     "initialisers": [{"name": "w", "dtype": "int8", "shape": [2], "offset": 64}],
     "nodes": [{"id": "conv1", "op": "Conv", "domain": "", "inputs": ["x", "w", ""], "outputs": ["y"],
                "attributes": {"strides": {"ints": [1, 1]}, "alpha": {"float": 0.1}, "scales": {"floats": []}}}]})");
  std::vector<std::byte> arena(66);
  arena[65] = std::byte{5};
  const auto graph = graph_from_json(object, arena);
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(graph->opset(), 17);
  EXPECT_EQ((*graph->inputs[0].shape)[0].symbol, "batch");
  EXPECT_EQ((*graph->inputs[0].shape)[1].value, 1);
  EXPECT_FALSE((*graph->inputs[0].shape)[2].value);
  EXPECT_FALSE(graph->outputs[0].shape);
  EXPECT_EQ(graph->initialisers.at("w").int_at(1), 5);
  EXPECT_EQ(std::get<float>(graph->nodes[0].attributes.at("alpha")), 0.1f);
  EXPECT_TRUE(std::get<std::vector<float>>(graph->nodes[0].attributes.at("scales")).empty());
}

// Each edit of a valid object must end in an error that says where.
TEST(GraphJson, BrokenObjectsAreErrors) {
  ArenaBuilder arena;
  const json good = graph_to_json(testing_graphs::small_net(), arena);
  const auto bytes = arena.to_bytes();
  const auto message = [&](const char* pointer, const json& value) {
    json edited = good;
    edited[json::json_pointer(pointer)] = value;
    const auto graph = graph_from_json(edited, bytes);
    return graph ? std::string("(read)") : graph.error().message;
  };
  EXPECT_THAT(message("/nodes/0/op", 3), HasSubstr("'op' must be a string"));
  EXPECT_THAT(message("/nodes", "x"), HasSubstr("'nodes' must be a list"));
  EXPECT_THAT(message("/initialisers/0/offset", 1), HasSubstr("offset 1"));
  EXPECT_THAT(message("/initialisers/0/offset", 64000), HasSubstr("outside the arena"));
  EXPECT_THAT(message("/initialisers/0/shape", json::array({1LL << 40, 1LL << 20})), HasSubstr("2^48"));
  EXPECT_THAT(message("/initialisers/0/shape", json::array({-1})), HasSubstr("negative"));
  EXPECT_THAT(message("/initialisers/0/dtype", "float8"), HasSubstr("float8"));
  EXPECT_THAT(message("/nodes/0/attributes", json{{"axis", {{"complex", 1}}}}), HasSubstr("attribute 'axis'"));
  EXPECT_THAT(message("/nodes/0/attributes", json{{"axis", {{"int", 1.5}}}}), HasSubstr("integer"));
  EXPECT_THAT(message("/opsets", json{{"", -3}}), HasSubstr("version"));
  for (const auto& [key, value] : good.items()) {
    if (key == "ir_version" || key == "opset" || key == "values") continue;
    json edited = good;
    edited.erase(key);
    EXPECT_FALSE(graph_from_json(edited, bytes)) << key;
  }
  EXPECT_FALSE(graph_from_json(json(), bytes));
  EXPECT_FALSE(graph_from_json(json::array(), bytes));
}

TEST(GraphJson, BottomlessSubgraphsAreRefused) {
  ArenaBuilder arena;
  json object = graph_to_json(testing_graphs::small_net(), arena);
  for (int i = 0; i < 100; ++i) {
    json outer = graph_to_json(testing_graphs::small_net(), arena);
    outer["nodes"][0]["attributes"] = {{"body", {{"graph", object}}}};
    object = outer;
  }
  const auto graph = graph_from_json(object, arena.to_bytes());
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("nested"));
}

TEST(GraphJson, NonUtf8StringsDoNotStopTheDump) {
  Graph graph = testing_graphs::small_net();
  graph.nodes[0].attributes["mode"] = std::string("a\xff");
  ArenaBuilder arena;
  EXPECT_NO_THROW(graph_to_json(graph, arena).dump());
}

}  // namespace
}  // namespace opdiff
