// Damaged models and graph objects: a value or an error with a text, never a crash. Seeded: a failure
// repeats.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "graph/graph_json.h"
#include "graph/onnx_reader.h"
#include "graph/onnx_writer.h"
#include "graph/segments.h"
#include "graph/text.h"
#include "graph/validate.h"
#include "sample_graphs.h"

namespace opdiff {
namespace {

// A few edits: bytes changed, removed, doubled, moved, or the end cut off.
std::string mutate(std::string bytes, Rng& rng) {
  const auto position = [&] {
    return static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bytes.size()) - 1));
  };
  for (std::int64_t k = rng.integer(1, 4); k > 0 && !bytes.empty(); --k) {
    const std::size_t at = position();
    const auto length = static_cast<std::size_t>(rng.integer(1, 16));
    switch (rng.integer(0, 5)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.integer(0, 7))); break;
      case 1: bytes[at] = static_cast<char>(rng.pick(std::vector<int>{0, 1, 0x7F, 0x80, 0xFF})); break;
      case 2: bytes[at] = static_cast<char>(rng.integer(0, 255)); break;
      case 3: bytes.erase(at, length); break;
      case 4: bytes.insert(position(), bytes.substr(at, length)); break;
      default:
        if (rng.chance(0.2)) bytes.resize(at);
    }
  }
  return bytes;
}

// Whatever was read goes through everything that a read graph may meet.
void exercise(Graph graph) {
  to_text(graph);
  if (!validate(graph)) return;
  const std::string bytes = write_onnx(graph);
  const auto again = parse_onnx(bytes, {}, "again");
  ASSERT_TRUE(again) << again.error().message;
  ArenaBuilder arena;
  const nlohmann::json object = graph_to_json(graph, arena);
  ASSERT_TRUE(graph_from_json(nlohmann::json::parse(object.dump()), arena.to_bytes()));
  std::vector<int> all, labels;
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    all.push_back(i);
    labels.push_back(i % 2);
  }
  isolate_nodes(graph, all, {});
  for (const auto& segment : partition_into_convex_segments(graph, labels)) extract_subgraph(graph, segment, {});
  static_cast<void>(bind_dimensions(graph, {{"batch", 2}}, {}, false));
}

TEST(Fuzz, DamagedModels) {
  const std::string models[] = {write_onnx(testing_graphs::small_net()),
                                write_onnx(testing_graphs::every_kind_of_attribute())};
  constexpr int kCount = 6000;
  int read = 0;
  for (std::uint64_t seed = 0; seed < kCount; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "damaged models");
    const std::string bytes = mutate(models[seed % 2], rng);
    const auto graph = parse_onnx(bytes, "/nowhere", "damaged.onnx");
    if (graph) {
      ++read;
      exercise(*graph);
    } else {
      ASSERT_TRUE(graph.error().message.starts_with("damaged.onnx: ")) << graph.error().message;
    }
  }
  EXPECT_GT(read, kCount / 50);
  EXPECT_LT(read, kCount);
}

TEST(Fuzz, DamagedGraphObjects) {
  ArenaBuilder builder;
  const std::string text = graph_to_json(testing_graphs::every_kind_of_attribute(), builder).dump();
  const auto arena = builder.to_bytes();
  constexpr int kCount = 6000;
  int read = 0;
  for (std::uint64_t seed = 0; seed < kCount; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "damaged objects");
    const auto object = nlohmann::json::parse(mutate(text, rng), nullptr, false);
    if (object.is_discarded()) continue;
    const auto graph = graph_from_json(object, arena);
    if (graph) {
      ++read;
      to_text(*graph);
    } else {
      ASSERT_FALSE(graph.error().message.empty());
    }
  }
  EXPECT_GT(read, kCount / 50);
}

}  // namespace
}  // namespace opdiff
