#include "ops/call.h"

namespace opdiff {
namespace {

template <class T>
const T* find(const Node& node, const std::string& name) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? nullptr : std::get_if<T>(&found->second);
}

}  // namespace

Call::Call(const Node& node, int opset, std::span<const Tensor* const> inputs)
    : node_(&node), opset_(opset), tensors_(inputs.begin(), inputs.end()) {
  for (const Tensor* tensor : inputs)
    types_.push_back(tensor ? std::optional(TensorType{tensor->dtype(), tensor->shape()}) : std::nullopt);
}

Call::Call(const Node& node, int opset, std::vector<std::optional<TensorType>> types,
           std::vector<const Tensor*> tensors)
    : node_(&node), opset_(opset), types_(std::move(types)), tensors_(std::move(tensors)) {
  tensors_.resize(types_.size(), nullptr);
}

Call Call::head(const Node& node, int count) const {
  Call result = *this;
  result.node_ = &node;
  result.types_.resize(static_cast<std::size_t>(count));
  result.tensors_.resize(static_cast<std::size_t>(count));
  return result;
}

std::int64_t Call::integer(const std::string& name, std::int64_t otherwise) const {
  const auto* value = find<std::int64_t>(*node_, name);
  return value ? *value : otherwise;
}

double Call::real(const std::string& name, double otherwise) const {
  const auto* value = find<float>(*node_, name);
  return value ? *value : static_cast<float>(otherwise);
}

std::string Call::text(const std::string& name, const std::string& otherwise) const {
  const auto* value = find<std::string>(*node_, name);
  return value ? *value : otherwise;
}

std::vector<std::int64_t> Call::integers(const std::string& name, std::vector<std::int64_t> otherwise) const {
  const auto* value = find<std::vector<std::int64_t>>(*node_, name);
  return value ? *value : otherwise;
}

const Tensor* Call::tensor_attribute(const std::string& name) const { return find<Tensor>(*node_, name); }

}  // namespace opdiff
