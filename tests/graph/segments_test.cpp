// Cutting graphs: extraction, closure, partition and isolation, on random graphs against brute force too.
#include "graph/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "graph/uses.h"
#include "graph/validate.h"
#include "sample_graphs.h"

namespace opdiff {
namespace {

using testing::ElementsAre;
using testing_graphs::node;
using testing_graphs::small_net;

std::vector<std::string> names(const std::vector<ValueInfo>& infos) {
  std::vector<std::string> result;
  for (const auto& info : infos) result.push_back(info.name);
  return result;
}

// x -> a -> (b, c) -> d = b + c; k is a constant added in c and e.
Graph diamond() {
  Graph graph;
  graph.inputs = {{"x", DType::f16, testing_graphs::dimensions({2})}};
  graph.outputs = {{"e", DType::f16, testing_graphs::dimensions({2})}};
  graph.initialisers["w"] = Tensor::zeros(DType::f16, {2});
  graph.nodes = {
      node("Relu", {"x"}, {"a"}),     node("Constant", {}, {"k"}, {{"value", Tensor::zeros(DType::f16, {2})}}),
      node("Mul", {"a", "w"}, {"b"}), node("Add", {"a", "k"}, {"c"}),
      node("Add", {"b", "c"}, {"d"}), node("Mul", {"d", "k"}, {"e"})};
  return graph;
}

TEST(Extract, InputsInitialisersAndOutputs) {
  const Graph graph = diamond();
  const Graph part = extract_subgraph(graph, {2, 3}, {{"a", {DType::f16, Shape{2}}}, {"b", {DType::f16, Shape{2}}}});
  EXPECT_THAT(names(part.inputs), ElementsAre("a"));
  EXPECT_EQ(part.inputs[0].dtype, DType::f16);
  EXPECT_EQ((*part.inputs[0].shape)[0].value, 2);
  EXPECT_THAT(names(part.outputs), ElementsAre("b", "c"));
  EXPECT_EQ(part.initialisers.size(), 2u);
  EXPECT_TRUE(part.initialisers.contains("w"));
  EXPECT_TRUE(part.initialisers.contains("k"));
  EXPECT_EQ(part.nodes.size(), 2u);
  EXPECT_EQ(part.opsets, graph.opsets);

  const Graph with_constant = extract_subgraph(graph, {1, 3}, {});
  EXPECT_FALSE(with_constant.initialisers.contains("k"));
  EXPECT_THAT(names(with_constant.outputs), ElementsAre("k", "c"));

  Graph whole = extract_subgraph(graph, {0, 1, 2, 3, 4, 5}, {});
  EXPECT_THAT(names(whole.inputs), ElementsAre("x"));
  EXPECT_THAT(names(whole.outputs), ElementsAre("e"));
  EXPECT_EQ(whole.inputs[0].dtype, DType::f16);  // from the declaration
  EXPECT_TRUE(validate(whole));
}

TEST(Extract, NodesNobodyUsesGiveTheirOutputs) {
  Graph graph = diamond();
  graph.nodes.push_back(node("Relu", {"a"}, {"dead"}));
  EXPECT_THAT(names(extract_subgraph(graph, {6}, {}).outputs), ElementsAre("dead"));
}

TEST(Convexity, Diamond) {
  const Graph graph = diamond();
  EXPECT_THAT(convex_closure(graph, {0, 4}), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(convex_closure(graph, {4, 2}), ElementsAre(2, 4));
  EXPECT_FALSE(is_convex(graph, {0, 4}));
  EXPECT_TRUE(is_convex(graph, {3, 2}));
  EXPECT_TRUE(is_convex(graph, {}));
}

TEST(Partition, ConstantsHaveNoLabel) {
  const auto segments = partition_into_convex_segments(diamond(), {0, 7, 0, 1, 0, 0});
  EXPECT_THAT(segments, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 5)));
  Graph only_constant;
  only_constant.nodes = {node("Constant", {}, {"k"}, {{"value_int", std::int64_t{3}}})};
  only_constant.outputs = {{"k", DType::i64, std::vector<Dimension>{}}};
  EXPECT_THAT(partition_into_convex_segments(only_constant, {0}), ElementsAre(ElementsAre(0)));
  EXPECT_TRUE(partition_into_convex_segments(Graph(), {}).empty());
}

TEST(Isolate, NoTwoNodesShareAnEdge) {
  const Graph graph = diamond();
  const auto isolated = isolate_nodes(graph, {0, 2, 3, 4, 5}, {{"d", {DType::f16, Shape{2}}}});
  EXPECT_THAT(names(isolated.graph.inputs), ElementsAre("0/x", "2/a", "3/a", "4/b", "4/c", "5/d"));
  EXPECT_THAT(names(isolated.graph.outputs), ElementsAre("0/a", "2/b", "3/c", "4/d", "5/e"));
  EXPECT_EQ(isolated.inputs.at("4/c"), "c");
  EXPECT_EQ(isolated.outputs.at("5/e"), "e");
  EXPECT_THAT(isolated.graph.nodes[1].inputs, ElementsAre("2/a", "w"));
  EXPECT_EQ(isolated.graph.nodes[1].id, "b");
  EXPECT_EQ(isolated.graph.initialisers.size(), 2u);
  Graph copy = isolated.graph;
  EXPECT_TRUE(validate(copy));
  const Uses uses(copy);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(uses.successors(i).empty());
}

TEST(Isolate, RepeatedInputsUnusedOutputsAndTakenNames) {
  Graph graph;
  graph.inputs = {{"x", DType::f32, std::nullopt}};
  graph.initialisers["0/x"] = Tensor::zeros(DType::f32, {1});
  graph.outputs = {{"y", DType::f32, std::nullopt}};
  graph.nodes = {node("Sum", {"x", "x", "", "0/x"}, {"y", "", "unused"})};
  const auto isolated = isolate_nodes(graph, {0}, {});
  EXPECT_THAT(isolated.graph.nodes[0].inputs, ElementsAre("0//x", "0//x", "", "0/x"));
  EXPECT_THAT(isolated.graph.nodes[0].outputs, ElementsAre("0/y", "", "0/unused"));
  EXPECT_THAT(names(isolated.graph.inputs), ElementsAre("0//x"));
  EXPECT_THAT(names(isolated.graph.outputs), ElementsAre("0/y"));
}

// A node whose subgraph takes tensors from outside depends on them.
TEST(Isolate, SubgraphsAreRenamedToo) {
  Graph body;
  body.nodes = {node("Mul", {"a", "w"}, {"t"})};
  body.outputs = {{"t", DType::f32, std::nullopt}};
  Graph graph = diamond();
  graph.nodes.push_back(node("If", {"x"}, {"f"}, {{"then_branch", std::make_shared<Graph>(body)}}));
  EXPECT_THAT(used_names(graph.nodes[6]), ElementsAre("x", "a", "w"));
  EXPECT_THAT(convex_closure(graph, {0, 6}), ElementsAre(0, 6));
  const Graph part = extract_subgraph(graph, {6}, {});
  EXPECT_THAT(names(part.inputs), ElementsAre("x", "a"));
  EXPECT_TRUE(part.initialisers.contains("w"));
  const auto isolated = isolate_nodes(graph, {6}, {});
  const auto& renamed = *std::get<std::shared_ptr<Graph>>(isolated.graph.nodes[0].attributes.at("then_branch"));
  EXPECT_THAT(renamed.nodes[0].inputs, ElementsAre("6/a", "w"));
  EXPECT_EQ(body.nodes[0].inputs[0], "a");
  Graph copy = isolated.graph;
  EXPECT_TRUE(validate(copy));
}

// ---- random graphs ----

Graph random_graph(Rng& rng) {
  Graph graph;
  graph.inputs = {{"x", DType::f32, std::nullopt}};
  std::vector<std::string> tensors = {"x"};
  const int count = static_cast<int>(rng.integer(1, 12));
  for (int i = 0; i < count; ++i) {
    std::vector<std::string> inputs;
    for (std::int64_t k = rng.integer(1, 3); k > 0; --k)
      inputs.push_back(
          tensors[tensors.size() - 1 -
                  static_cast<std::size_t>(rng.integer(0, std::min<std::int64_t>(tensors.size() - 1, 4)))]);
    if (rng.chance(0.1))
      graph.nodes.push_back(node("Constant", {}, {fmt::format("t{}", i)}, {{"value_float", 1.0f}}));
    else
      graph.nodes.push_back(node("Op", inputs, {fmt::format("t{}", i)}));
    tensors.push_back(fmt::format("t{}", i));
  }
  graph.outputs = {{tensors.back(), DType::f32, std::nullopt}};
  return graph;
}

// reach[i][j]: a path of one or more edges from i to j.
std::vector<std::vector<bool>> reachability(const Graph& graph) {
  const std::size_t n = graph.nodes.size();
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n, false));
  for (std::size_t j = 0; j < n; ++j)
    for (const auto& input : graph.nodes[j].inputs)
      for (std::size_t i = 0; i < j; ++i)
        if (graph.nodes[i].outputs[0] == input) reach[i][j] = true;
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        if (reach[i][k] && reach[k][j]) reach[i][j] = true;
  return reach;
}

TEST(Random, ClosureAgreesWithBruteForce) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Graph graph = random_graph(rng);
    const auto reach = reachability(graph);
    std::vector<int> chosen;
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i)
      if (rng.chance(0.3)) chosen.push_back(i);
    std::set<int> expected(chosen.begin(), chosen.end());
    for (std::size_t v = 0; v < graph.nodes.size(); ++v)
      for (const int a : chosen)
        for (const int b : chosen)
          if (reach[static_cast<std::size_t>(a)][v] && reach[v][static_cast<std::size_t>(b)])
            expected.insert(static_cast<int>(v));
    EXPECT_EQ(convex_closure(graph, chosen), std::vector<int>(expected.begin(), expected.end()));
  }
}

TEST(Random, PartitionsAreCompleteOneLabelledConvexAndOrdered) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Graph graph = random_graph(rng);
    const std::size_t n = graph.nodes.size();
    std::vector<int> labels(n);
    const std::int64_t label_count = rng.integer(1, 3);
    for (int& label : labels) label = static_cast<int>(rng.integer(1, label_count));
    const auto segments = partition_into_convex_segments(graph, labels);
    std::vector<int> segment_of(n, -1);
    for (std::size_t s = 0; s < segments.size(); ++s) {
      std::set<int> used_labels;
      for (const int i : segments[s]) {
        EXPECT_EQ(segment_of[static_cast<std::size_t>(i)], -1);
        segment_of[static_cast<std::size_t>(i)] = static_cast<int>(s);
        if (graph.nodes[static_cast<std::size_t>(i)].op != "Constant")
          used_labels.insert(labels[static_cast<std::size_t>(i)]);
      }
      EXPECT_LE(used_labels.size(), 1u);
      EXPECT_TRUE(is_convex(graph, segments[s]));
    }
    const auto reach = reachability(graph);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_GE(segment_of[i], 0);
      for (std::size_t j = 0; j < n; ++j) EXPECT_TRUE(!reach[i][j] || segment_of[i] <= segment_of[j]);
    }
    EXPECT_TRUE(label_count > 1 || segments.size() == 1);

    // The segments, run in order, find every input among what is there already.
    std::set<std::string> there = {"x"};
    for (const auto& segment : segments) {
      Graph part = extract_subgraph(graph, segment, {});
      EXPECT_TRUE(validate(part));
      for (const auto& input : part.inputs) EXPECT_TRUE(there.contains(input.name)) << input.name;
      for (const auto& output : part.outputs) there.insert(output.name);
    }
    EXPECT_TRUE(there.contains(graph.outputs[0].name));
  }
}

}  // namespace
}  // namespace opdiff
