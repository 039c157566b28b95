// The intermediate representation of a model: nodes over named tensors, as ONNX has them, with owned data.
// Read from ONNX by graph/onnx_reader.h, written by graph/onnx_writer.h, checked by graph/validate.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/tensor.h"

namespace opdiff {

struct Graph;

// ONNX's AttributeProto. Subgraphs are kept (and written back) but no meta-operator of ours takes one yet.
using Attribute = std::variant<std::int64_t, float, std::string, Tensor, std::vector<std::int64_t>, std::vector<float>,
                               std::vector<std::string>, std::shared_ptr<Graph>>;

struct Node {
  std::string id;                    // its name if unique and non-empty, else its first output's name
  std::string op;                    // "Conv"
  std::string domain;                // "" is ai.onnx
  std::vector<std::string> inputs;   // "" is an absent optional input
  std::vector<std::string> outputs;  // "" is an output nobody asked for
  std::map<std::string, Attribute> attributes;
};

// A dimension is a number, a symbol ("batch"), or unknown (nullopt number, empty symbol).
struct Dimension {
  std::optional<std::int64_t> value;
  std::string symbol;
};

struct ValueInfo {
  std::string name;
  DType dtype = DType::f32;
  std::optional<std::vector<Dimension>> shape;  // nullopt: unknown rank
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;  // in topological order once validated
  std::map<std::string, Tensor> initialisers;
  std::vector<ValueInfo> inputs;  // without initialisers
  std::vector<ValueInfo> outputs;
  std::vector<ValueInfo> values;  // declared types of inner tensors
  int ir_version = 8;
  std::map<std::string, int> opsets = {{"", 17}};  // domain -> version

  int opset(const std::string& domain = "") const {
    const auto found = opsets.find(domain);
    return found == opsets.end() ? 1 : found->second;
  }
};

// Named tensors: a model's inputs, or what a run gave.
using TensorMap = std::map<std::string, Tensor>;

}  // namespace opdiff
