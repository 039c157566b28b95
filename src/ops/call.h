// A call is one node met with its inputs: what shape rules, formulas and generators see of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace opdiff {

class Call {
 public:
  Call(const Node& node, int opset) : node_(&node), opset_(opset) {}
  // With concrete tensors (nullptr: absent optional input).
  Call(const Node& node, int opset, std::span<const Tensor* const> inputs);
  // With types only; tensors where their values are known before the run (initialisers, constants), else nullptr.
  Call(const Node& node, int opset, std::vector<std::optional<TensorType>> types, std::vector<const Tensor*> tensors);

  // The same opset and the first `count` inputs, as a call of another node.
  Call head(const Node& node, int count) const;

  const Node& node() const { return *node_; }
  int opset() const { return opset_; }
  int input_count() const { return static_cast<int>(types_.size()); }
  // Whether optional input k is there.
  bool has(int k) const { return k < input_count() && types_[static_cast<std::size_t>(k)].has_value(); }
  DType dtype(int k) const { return types_[static_cast<std::size_t>(k)]->dtype; }
  bool has_shape(int k) const { return types_[static_cast<std::size_t>(k)]->shape.has_value(); }
  const Shape& shape(int k) const { return *types_[static_cast<std::size_t>(k)]->shape; }
  std::int64_t rank(int k) const { return static_cast<std::int64_t>(shape(k).size()); }
  // The value of input k, or nullptr where it is not known yet.
  const Tensor* tensor(int k) const { return k < input_count() ? tensors_[static_cast<std::size_t>(k)] : nullptr; }
  // How many outputs the node names; output k is wanted when it is named.
  bool wants(std::size_t k) const { return k < node_->outputs.size() && !node_->outputs[k].empty(); }

  // Attributes, checked against the operator's table beforehand: only presence is asked here.
  bool has_attribute(const std::string& name) const { return node_->attributes.contains(name); }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const;
  double real(const std::string& name, double otherwise) const;  // as f32, which is what ONNX stores
  std::string text(const std::string& name, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(const std::string& name, std::vector<std::int64_t> otherwise = {}) const;
  const Tensor* tensor_attribute(const std::string& name) const;

 private:
  const Node* node_;
  int opset_;
  std::vector<std::optional<TensorType>> types_;
  std::vector<const Tensor*> tensors_;
};

}  // namespace opdiff
