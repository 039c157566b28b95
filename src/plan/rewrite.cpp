#include "plan/rewrite.h"

#include <algorithm>
#include <cstring>

namespace opdiff {
namespace {

Tensor broadcast_to(const Tensor& tensor, const Shape& shape) {
  Tensor result = Tensor::zeros(tensor.dtype(), shape);
  const Shape strides = broadcast_strides(tensor.shape(), shape);
  const std::size_t size = dtype_size(tensor.dtype());
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const Shape at = unravel(i, shape);
    std::int64_t from = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) from += at[axis] * strides[axis];
    std::memcpy(result.mutable_bytes().data() + static_cast<std::size_t>(i) * size,
                tensor.bytes().data() + static_cast<std::size_t>(from) * size, size);
  }
  return result;
}

std::optional<RewrittenNode> broadcast_before(RewrittenNode rewritten, const std::vector<const Tensor*>& inputs) {
  if (inputs.size() != 2 || inputs[0] == nullptr || inputs[1] == nullptr) return std::nullopt;
  if (inputs[0]->shape() == inputs[1]->shape()) return std::nullopt;
  const Expected<Shape> shape = broadcast_shapes(inputs[0]->shape(), inputs[1]->shape());
  if (!shape) return std::nullopt;
  for (std::size_t slot = 0; slot < 2; ++slot) rewritten.inputs[slot] = broadcast_to(*inputs[slot], *shape);
  rewritten.how = "operands broadcast before";
  return rewritten;
}

// `change`: the opset at which the attribute became the input in slot 1.
std::optional<RewrittenNode> move_axes(RewrittenNode rewritten, int change) {
  Node& node = rewritten.node;
  if (rewritten.opset >= change) {
    if (rewritten.inputs.size() < 2 || !rewritten.inputs[1]) return std::nullopt;
    node.attributes["axes"] = rewritten.inputs[1]->to_int64s();
    node.attributes.erase("noop_with_empty_axes");
    node.inputs.resize(1);
    rewritten.inputs.resize(1);
    rewritten.opset = change - 1;
    rewritten.how = "axes as an attribute";
  } else {
    const auto axes = node.attributes.find("axes");
    if (axes == node.attributes.end()) return std::nullopt;
    const auto values = std::get<std::vector<std::int64_t>>(axes->second);
    node.attributes.erase(axes);
    node.inputs.resize(1);
    node.inputs.push_back(node.id + ".axes");
    rewritten.inputs.resize(1);
    rewritten.inputs.push_back(Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(values.size())}, values));
    rewritten.opset = change;
    rewritten.how = "axes as an input";
  }
  return rewritten;
}

}  // namespace

std::optional<RewrittenNode> rewrite_node(const Node& node, int opset, const std::vector<const Tensor*>& inputs) {
  if (!node.domain.empty()) return std::nullopt;
  RewrittenNode rewritten;
  rewritten.node = node;
  rewritten.opset = opset;
  for (const Tensor* input : inputs) {
    rewritten.inputs.push_back(input == nullptr ? std::nullopt : std::optional<Tensor>(*input));
  }
  if (node.op == "Add" || node.op == "Sub" || node.op == "Mul" || node.op == "Div") {
    return broadcast_before(std::move(rewritten), inputs);
  }
  if (node.op == "ReduceMean") return move_axes(std::move(rewritten), 18);
  if (node.op == "Squeeze" || node.op == "Unsqueeze") return move_axes(std::move(rewritten), 13);
  return std::nullopt;
}

}  // namespace opdiff
