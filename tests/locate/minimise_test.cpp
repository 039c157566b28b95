#include "locate/minimise.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "graphs.h"

namespace opdiff {
namespace {

bool holds(const NodeSet& nodes, const NodeSet& wanted) {
  return std::includes(nodes.begin(), nodes.end(), wanted.begin(), wanted.end());
}

NodeSet all_of(const Graph& graph) {
  NodeSet nodes;
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) nodes.push_back(i);
  return nodes;
}

TEST(Minimise, FindsEveryPairOfALine) {
  const Graph graph = line_of(9);
  for (int first = 0; first < 9; ++first) {
    for (int second = first; second < 9; ++second) {
      const MinimiseResult result = minimise_segment(
          graph, all_of(graph), [&](const NodeSet& nodes) { return holds(nodes, {first}) && holds(nodes, {second}); });
      NodeSet between;
      for (int node = first; node <= second; ++node) between.push_back(node);
      EXPECT_EQ(result.status, MinimiseStatus::found);
      EXPECT_EQ(result.segment, between) << first << " " << second;
    }
  }
}

TEST(Minimise, CostsFewProbesOnALongLine) {
  const Graph graph = line_of(1000);
  const MinimiseResult result =
      minimise_segment(graph, all_of(graph), [](const NodeSet& nodes) { return holds(nodes, {500, 501, 502}); });
  EXPECT_EQ(result.segment, (NodeSet{500, 501, 502}));
  EXPECT_LE(result.probes, 80);
}

// On random graphs with a random guilty core: the result is convex, holds the core, and no source or sink can go.
TEST(Minimise, IsMinimalOnRandomGraphs) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed, "minimise");
    const int size = static_cast<int>(rng.integer(2, 14));
    std::vector<std::string> lines;
    for (int i = 0; i < size; ++i) {
      std::string line = fmt::format("n{}: ", i);
      const std::int64_t inputs = rng.integer(1, 2);
      for (std::int64_t k = 0; k < inputs; ++k) {
        const std::int64_t from = rng.integer(-1, i - 1);
        line += from < 0 ? "x " : fmt::format("t{} ", from);
      }
      lines.push_back(line + fmt::format("-> t{}", i));
    }
    const Graph graph = graph_of(lines, {fmt::format("t{}", size - 1)});
    NodeSet core = {static_cast<int>(rng.integer(0, size - 1)), static_cast<int>(rng.integer(0, size - 1))};
    core = convex_closure(graph, core);
    const MinimiseResult result =
        minimise_segment(graph, all_of(graph), [&](const NodeSet& nodes) { return holds(nodes, core); });
    EXPECT_EQ(result.status, MinimiseStatus::found) << "seed " << seed;
    EXPECT_EQ(result.segment, core) << "seed " << seed;
  }
}

// A failure that comes from either of two cores, and one that goes when there is too much around it.
TEST(Minimise, NeedsNoMonotonicity) {
  const Graph graph = line_of(12);
  const auto either = [](const NodeSet& nodes) { return holds(nodes, {2, 3}) || holds(nodes, {8, 9}); };
  const NodeSet segment = minimise_segment(graph, all_of(graph), either).segment;
  EXPECT_TRUE(segment == (NodeSet{2, 3}) || segment == (NodeSet{8, 9}));
  const auto hidden = [](const NodeSet& nodes) {
    return holds(nodes, {4, 5}) && (nodes.size() == 12 || !holds(nodes, {6, 7, 8}));
  };
  const MinimiseResult result = minimise_segment(graph, all_of(graph), hidden);
  EXPECT_EQ(result.status, MinimiseStatus::found);
  EXPECT_EQ(result.segment, (NodeSet{4, 5}));
}

TEST(Minimise, TellsLostFromNotDeterministic) {
  const Graph graph = line_of(6);
  EXPECT_EQ(minimise_segment(graph, all_of(graph), [](const NodeSet&) { return false; }).status,
            MinimiseStatus::not_shown);
  int calls = 0;
  const MinimiseResult flaky = minimise_segment(
      graph, all_of(graph), [&](const NodeSet& nodes) { return nodes.size() == 6 || ++calls % 2 == 0; });
  EXPECT_EQ(flaky.status, MinimiseStatus::not_deterministic);
  EXPECT_EQ(flaky.segment.size(), 6U);
}

TEST(Minimise, GivesUpAtItsLimitWithAFailingSegment) {
  const Graph graph = line_of(100);
  const auto fails = [](const NodeSet& nodes) { return holds(nodes, {40, 41}); };
  const MinimiseResult result = minimise_segment(graph, all_of(graph), fails, 8);
  EXPECT_EQ(result.status, MinimiseStatus::gave_up);
  EXPECT_TRUE(fails(result.segment));
  EXPECT_LE(result.probes, 8);
}

}  // namespace
}  // namespace opdiff
