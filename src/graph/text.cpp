#include "graph/text.h"

#include <fmt/ranges.h>

#include "base/utf8.h"

namespace opdiff {
namespace {

std::string quoted(const std::string& text) { return '"' + replace_invalid_utf8(text) + '"'; }

std::string list(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(name.empty() ? "_" : name);
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::string tensor_text(const Tensor& tensor) {
  constexpr std::int64_t kShownElements = 8;
  std::string text = to_string(TensorType{tensor.dtype(), tensor.shape()});
  if (tensor.size() > kShownElements) return text;
  std::vector<std::string> values;
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    values.push_back(is_float(tensor.dtype())       ? fmt::format("{:.6g}", tensor.at(i))
                     : tensor.dtype() == DType::u64 ? fmt::format("{}", static_cast<std::uint64_t>(tensor.int_at(i)))
                                                    : fmt::format("{}", tensor.int_at(i)));
  return fmt::format("{}{{{}}}", text, fmt::join(values, ","));
}

struct AttributeText {
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(float value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(const Tensor& value) const { return tensor_text(value); }
  std::string operator()(const std::vector<std::int64_t>& values) const {
    return fmt::format("[{}]", fmt::join(values, ","));
  }
  std::string operator()(const std::vector<float>& values) const { return fmt::format("[{}]", fmt::join(values, ",")); }
  std::string operator()(const std::vector<std::string>& values) const {
    std::vector<std::string> shown;
    for (const std::string& value : values) shown.push_back(quoted(value));
    return fmt::format("[{}]", fmt::join(shown, ","));
  }
  std::string operator()(const std::shared_ptr<Graph>& graph) const {
    return fmt::format("graph{{{} nodes}}", graph->nodes.size());
  }
};

}  // namespace

std::string to_text(const ValueInfo& info) {
  std::string dtype(dtype_name(info.dtype));
  if (!info.shape) return dtype + "[?]";
  std::vector<std::string> shown;
  for (const Dimension& dimension : *info.shape)
    shown.push_back(dimension.value            ? fmt::format("{}", *dimension.value)
                    : dimension.symbol.empty() ? "?"
                                               : dimension.symbol);
  return fmt::format("{}[{}]", dtype, fmt::join(shown, ","));
}

std::string to_text(const Attribute& attribute) { return std::visit(AttributeText{}, attribute); }

std::string to_text(const Node& node) {
  std::vector<std::string> attributes;
  for (const auto& [name, value] : node.attributes) attributes.push_back(fmt::format("{}={}", name, to_text(value)));
  return fmt::format("{}: {}{}{}({}) -> {}{}", node.id, node.domain, node.domain.empty() ? "" : ".", node.op,
                     list(node.inputs), list(node.outputs),
                     attributes.empty() ? "" : fmt::format("  {{{}}}", fmt::join(attributes, ", ")));
}

std::string to_text(const Graph& graph) {
  std::vector<std::string> opsets;
  for (const auto& [domain, version] : graph.opsets)
    opsets.push_back(domain.empty() ? fmt::format("{}", version) : fmt::format("{} {}", domain, version));
  std::string text =
      fmt::format("graph {} (opset {}, IR version {})\n", graph.name, fmt::join(opsets, ", "), graph.ir_version);
  for (const ValueInfo& input : graph.inputs) text += fmt::format("input {}: {}\n", input.name, to_text(input));
  for (const auto& [name, tensor] : graph.initialisers)
    text += fmt::format("initialiser {}: {}\n", name, to_string(TensorType{tensor.dtype(), tensor.shape()}));
  for (const Node& node : graph.nodes) text += to_text(node) + "\n";
  for (const ValueInfo& output : graph.outputs) text += fmt::format("output {}: {}\n", output.name, to_text(output));
  return text;
}

}  // namespace opdiff
