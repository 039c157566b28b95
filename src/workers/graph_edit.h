// Edits of a graph that change what a node computes, made of ONNX nodes that need no shapes: workers/faulty.cpp builds
// its faults from them. New nodes and tensors carry kFaultMark in their names.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace opdiff {

inline constexpr std::string_view kFaultMark = "__fault";

// Elements of a tensor: `count` of them from `index` on along `axis`, or along the flattened tensor. A negative index
// counts from the end.
struct Region {
  std::optional<std::int64_t> axis;
  std::int64_t index = 0;
  std::int64_t count = 1;
};

// What happens to elements: x -> x * factor + offset; exactly one of the two is not neutral.
struct Change {
  double factor = 1;
  double offset = 0;
};

class GraphEdit {
 public:
  explicit GraphEdit(Graph& graph);

  // By declared types, else by the inputs of the node that makes it.
  DType dtype_of(const std::string& tensor) const;
  const Node* maker_of(const std::string& tensor) const;

  // After these, whoever read output `name` of node `position` reads the changed one. The error says why the change
  // would be none.
  Expected<void> change_output(std::size_t position, const std::string& name, const Change& change);
  Expected<void> change_output(std::size_t position, const std::string& name, const Change& change,
                               const Region& region);
  // The graph takes one more input, of output `name`'s type and shape, that is added to the output.
  void add_fed_tensor(std::size_t position, const std::string& name);
  // The node reads a changed copy of its input; nobody else does.
  Expected<void> change_input(std::size_t position, std::size_t input, const Change& change, const Region& region);
  // The node reads input rounded to `dtype` and back.
  Expected<void> round_input(std::size_t position, std::size_t input, DType dtype);
  // The node reads `value` in place of an initialiser.
  void replace_initialiser(std::size_t position, std::size_t input, Tensor value);

  // Nodes that were added before or behind `position` since the last call shift it.
  std::size_t position_of(const std::string& id) const;

 private:
  // An error where the region lies beyond the tensor; nothing where the tensor's shape is not known.
  Expected<void> check_region(const std::string& name, const Region& region) const;
  std::string fresh(const std::string& stem);
  std::string constant(const std::string& stem, Tensor value);
  std::string add(std::vector<Node>& nodes, const std::string& stem, std::string op, std::vector<std::string> inputs,
                  std::map<std::string, Attribute> attributes = {}, std::string output = "");
  // Appends nodes that change `input`; their result is named `output`, or freshly. Returns its name.
  Expected<std::string> apply(std::vector<Node>& nodes, const std::string& stem, const std::string& input, DType dtype,
                              const Change& change, const std::string& output = "");
  Expected<std::string> apply(std::vector<Node>& nodes, const std::string& stem, const std::string& input, DType dtype,
                              const Change& change, const Region& region, const std::string& output = "");
  std::string slice(std::vector<Node>& nodes, const std::string& stem, const std::string& input, std::int64_t start,
                    std::int64_t end, std::int64_t axis);
  void insert(std::size_t position, std::vector<Node> nodes);

  Graph& graph_;
  std::set<std::string> taken_;  // names of nodes and tensors, those that are still to be inserted included
};

}  // namespace opdiff
