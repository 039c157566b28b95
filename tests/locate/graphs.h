// Graphs of nodes without attributes, written as "a: x -> y" lines, for tests that only care about the edges.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace opdiff {

// Each line "id: in in -> out out"; what no node makes is a graph input; `outputs` are the graph's.
inline Graph graph_of(const std::vector<std::string>& lines, const std::vector<std::string>& outputs,
                      const std::string& op = "Relu") {
  Graph graph;
  std::map<std::string, bool> made;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    Node node;
    node.op = op;
    std::string word;
    words >> node.id;
    node.id.pop_back();
    bool right = false;
    while (words >> word) {
      if (word == "->") {
        right = true;
      } else {
        (right ? node.outputs : node.inputs).push_back(word);
      }
    }
    for (const std::string& input : node.inputs) {
      if (!made[input]) {
        made[input] = true;
        graph.inputs.push_back({input, DType::f32, std::nullopt});
      }
    }
    for (const std::string& output : node.outputs) made[output] = true;
    graph.nodes.push_back(node);
  }
  for (const std::string& output : outputs) graph.outputs.push_back({output, DType::f32, std::nullopt});
  return graph;
}

// n0 -> n1 -> ... with `size` nodes.
inline Graph line_of(int size) {
  std::vector<std::string> lines;
  for (int i = 0; i < size; ++i) lines.push_back(fmt::format("n{}: t{} -> t{}", i, i, i + 1));
  return graph_of(lines, {fmt::format("t{}", size)});
}

}  // namespace opdiff
