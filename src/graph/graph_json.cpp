#include "graph/graph_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace opdiff {
namespace {

using nlohmann::json;
using Arena = std::span<const std::byte>;

// Subgraphs within subgraphs; ONNX models in the wild have at most 3 or 4.
constexpr int kMaxGraphDepth = 32;

// ---- reading members, with the member's name in the error ----

Expected<const json*> member(const json& object, const char* key) {
  if (!object.is_object()) return make_error("expected an object with '{}', found {}", key, object.type_name());
  const auto found = object.find(key);
  if (found == object.end()) return make_error("'{}' is missing", key);
  return &*found;
}

Expected<std::string> to_text(const json& value, const char* key) {
  if (!value.is_string()) return make_error("'{}' must be a string, not {}", key, value.type_name());
  return value.get<std::string>();
}

Expected<std::string> text_member(const json& object, const char* key) {
  OPDIFF_TRY(const json* value, member(object, key));
  return to_text(*value, key);
}

Expected<std::int64_t> to_integer(const json& value, const char* key) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  if (!fits) return make_error("'{}' must be a 64-bit integer, not {}", key, value.type_name());
  return value.get<std::int64_t>();
}

Expected<int> to_version(const json& value, const char* key) {
  OPDIFF_TRY(const std::int64_t number, to_integer(value, key));
  if (number < 0 || number > 1'000'000) return make_error("'{}' is {}, which is no version", key, number);
  return static_cast<int>(number);
}

template <class Parse>
auto list_of(const json& list, const char* key, Parse parse)
    -> Expected<std::vector<typename std::invoke_result_t<Parse, const json&>::value_type>> {
  std::vector<typename std::invoke_result_t<Parse, const json&>::value_type> result;
  if (!list.is_array()) return make_error("'{}' must be a list, not {}", key, list.type_name());
  for (const json& element : list) {
    OPDIFF_TRY(auto value, parse(element));
    result.push_back(std::move(value));
  }
  return result;
}

template <class Parse>
auto list_member(const json& object, const char* key, Parse parse) -> decltype(list_of(object, key, parse)) {
  OPDIFF_TRY(const json* list, member(object, key));
  return list_of(*list, key, parse);
}

Expected<std::vector<std::string>> texts_member(const json& object, const char* key) {
  return list_member(object, key, [key](const json& element) { return to_text(element, key); });
}

Expected<DType> dtype_member(const json& object) {
  OPDIFF_TRY(const std::string name, text_member(object, "dtype"));
  const std::optional<DType> dtype = parse_dtype(name);
  if (!dtype) return make_error("dtype '{}' is not known", name);
  return *dtype;
}

// ---- the parts of a graph ----

json value_info_to_json(const ValueInfo& info) {
  json shape = nullptr;
  if (info.shape) {
    shape = json::array();
    for (const Dimension& dimension : *info.shape) {
      if (dimension.value)
        shape.push_back(*dimension.value);
      else if (!dimension.symbol.empty())
        shape.push_back(dimension.symbol);
      else
        shape.push_back(nullptr);
    }
  }
  return {{"name", info.name}, {"dtype", std::string(dtype_name(info.dtype))}, {"shape", std::move(shape)}};
}

Expected<Dimension> dimension_from_json(const json& value) {
  if (value.is_null()) return Dimension{};
  if (value.is_string()) return Dimension{std::nullopt, value.get<std::string>()};
  OPDIFF_TRY(const std::int64_t number, to_integer(value, "shape"));
  return Dimension{number, ""};
}

Expected<ValueInfo> value_info_from_json(const json& object) {
  ValueInfo info;
  OPDIFF_TRY(info.name, text_member(object, "name"));
  OPDIFF_TRY(info.dtype, dtype_member(object));
  OPDIFF_TRY(const json* shape, member(object, "shape"));
  if (!shape->is_null()) {
    OPDIFF_TRY(info.shape, list_of(*shape, "shape", dimension_from_json));
  }
  return info;
}

json attribute_to_json(const std::string& name, const Attribute& attribute, ArenaBuilder& arena) {
  const auto numbers = [](const std::vector<float>& values) {
    json list = json::array();
    for (const float value : values) list.push_back(number_to_json(value));
    return list;
  };
  const auto texts = [](const std::vector<std::string>& values) {
    json list = json::array();
    for (const std::string& value : values) list.push_back(replace_invalid_utf8(value));
    return list;
  };
  struct Visitor {
    const std::string& name;
    ArenaBuilder& arena;
    decltype(numbers)& to_numbers;
    decltype(texts)& to_texts;
    json operator()(std::int64_t value) const { return {{"int", value}}; }
    json operator()(float value) const { return {{"float", number_to_json(value)}}; }
    json operator()(const std::string& value) const { return {{"string", replace_invalid_utf8(value)}}; }
    json operator()(const Tensor& value) const { return {{"tensor", tensor_to_json(name, value, arena)}}; }
    json operator()(const std::vector<std::int64_t>& values) const { return {{"ints", values}}; }
    json operator()(const std::vector<float>& values) const { return {{"floats", to_numbers(values)}}; }
    json operator()(const std::vector<std::string>& values) const { return {{"strings", to_texts(values)}}; }
    json operator()(const std::shared_ptr<Graph>& graph) const {
      OPDIFF_CHECK(graph != nullptr);
      return {{"graph", graph_to_json(*graph, arena)}};
    }
  };
  return std::visit(Visitor{name, arena, numbers, texts}, attribute);
}

Expected<float> float_from_json(const json& value) {
  OPDIFF_TRY(const double number, number_from_json(value));
  return static_cast<float>(number);
}

Expected<Graph> graph_at_depth(const json& object, Arena arena, int depth);

Expected<Attribute> attribute_from_json(const json& object, Arena arena, int depth) {
  if (!object.is_object() || object.size() != 1)
    return make_error("expected an object with one member that names the kind, found {}", object.dump().substr(0, 80));
  const std::string& kind = object.begin().key();
  const json& value = object.begin().value();
  if (kind == "int") return to_integer(value, "int").map([](auto v) { return Attribute(v); });
  if (kind == "float") return float_from_json(value).map([](auto v) { return Attribute(v); });
  if (kind == "string") return to_text(value, "string").map([](auto v) { return Attribute(std::move(v)); });
  if (kind == "tensor") return tensor_from_json(value, arena).map([](auto v) { return Attribute(v.second); });
  if (kind == "ints")
    return list_of(value, "ints", [](const json& v) { return to_integer(v, "ints"); }).map([](auto v) {
      return Attribute(std::move(v));
    });
  if (kind == "floats")
    return list_of(value, "floats", float_from_json).map([](auto v) { return Attribute(std::move(v)); });
  if (kind == "strings")
    return list_of(value, "strings", [](const json& v) { return to_text(v, "strings"); }).map([](auto v) {
      return Attribute(std::move(v));
    });
  if (kind == "graph")
    return graph_at_depth(value, arena, depth + 1).map([](auto v) {
      return Attribute(std::make_shared<Graph>(std::move(v)));
    });
  return make_error("attribute kind '{}' is not known", kind);
}

Expected<Node> node_from_json(const json& object, Arena arena, int depth) {
  Node node;
  OPDIFF_TRY(node.id, text_member(object, "id"));
  const auto rest = [&]() -> Expected<void> {
    OPDIFF_TRY(node.op, text_member(object, "op"));
    OPDIFF_TRY(node.domain, text_member(object, "domain"));
    OPDIFF_TRY(node.inputs, texts_member(object, "inputs"));
    OPDIFF_TRY(node.outputs, texts_member(object, "outputs"));
    OPDIFF_TRY(const json* attributes, member(object, "attributes"));
    if (!attributes->is_object()) return make_error("'attributes' must be an object");
    for (const auto& [name, value] : attributes->items()) {
      auto attribute = attribute_from_json(value, arena, depth);
      if (!attribute) return with_context(fmt::format("attribute '{}'", name), attribute.error());
      node.attributes.emplace(name, *std::move(attribute));
    }
    return {};
  }();
  if (!rest) return with_context(fmt::format("node '{}'", node.id), rest.error());
  return node;
}

Expected<Graph> graph_at_depth(const json& object, Arena arena, int depth) {
  if (depth > kMaxGraphDepth) return make_error("subgraphs are nested more than {} deep", kMaxGraphDepth);
  Graph graph;
  OPDIFF_TRY(graph.name, text_member(object, "name"));
  OPDIFF_TRY(const json* opsets, member(object, "opsets"));
  if (!opsets->is_object()) return make_error("'opsets' must be an object");
  graph.opsets.clear();
  for (const auto& [domain, value] : opsets->items()) {
    OPDIFF_TRY(graph.opsets[domain], to_version(value, "opsets"));
  }
  if (object.contains("ir_version")) {
    OPDIFF_TRY(graph.ir_version, to_version(object["ir_version"], "ir_version"));
  }
  OPDIFF_TRY(graph.inputs, list_member(object, "inputs", value_info_from_json));
  OPDIFF_TRY(graph.outputs, list_member(object, "outputs", value_info_from_json));
  if (object.contains("values")) {
    OPDIFF_TRY(graph.values, list_of(object["values"], "values", value_info_from_json));
  }
  OPDIFF_TRY(const json* initialisers, member(object, "initialisers"));
  OPDIFF_TRY(graph.initialisers, tensors_from_json(*initialisers, arena));
  OPDIFF_TRY(graph.nodes,
             list_member(object, "nodes", [&](const json& node) { return node_from_json(node, arena, depth); }));
  return graph;
}

}  // namespace

json number_to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Expected<double> number_from_json(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return make_error("expected a number, \"nan\", \"inf\" or \"-inf\", found {}", value.type_name());
}

json tensor_to_json(std::string_view name, const Tensor& tensor, ArenaBuilder& arena) {
  return {{"name", std::string(name)},
          {"dtype", std::string(dtype_name(tensor.dtype()))},
          {"shape", tensor.shape()},
          {"offset", arena.add(tensor)}};
}

Expected<std::pair<std::string, Tensor>> tensor_from_json(const json& object, Arena arena) {
  OPDIFF_TRY(std::string name, text_member(object, "name"));
  const auto tensor = [&]() -> Expected<Tensor> {
    OPDIFF_TRY(const DType dtype, dtype_member(object));
    OPDIFF_TRY(const Shape shape, list_member(object, "shape", [](const json& v) { return to_integer(v, "shape"); }));
    OPDIFF_TRY(const std::int64_t count, checked_element_count(shape));
    OPDIFF_TRY(const json* offset_value, member(object, "offset"));
    OPDIFF_TRY(const std::int64_t offset, to_integer(*offset_value, "offset"));
    const std::size_t bytes = static_cast<std::size_t>(count) * dtype_size(dtype);
    if (offset < 0 || offset % static_cast<std::int64_t>(kArenaAlignment) != 0)
      return make_error("offset {} is no multiple of {}", offset, kArenaAlignment);
    if (static_cast<std::size_t>(offset) > arena.size() || bytes > arena.size() - static_cast<std::size_t>(offset))
      return make_error("{}{} at offset {} ends outside the arena of {} bytes", dtype_name(dtype), to_string(shape),
                        offset, arena.size());
    return Tensor::from_bytes(dtype, shape, arena.subspan(static_cast<std::size_t>(offset), bytes));
  }();
  if (!tensor) return with_context(fmt::format("tensor '{}'", name), tensor.error());
  return std::pair(std::move(name), *tensor);
}

json tensors_to_json(const TensorMap& tensors, ArenaBuilder& arena) {
  json list = json::array();
  for (const auto& [name, tensor] : tensors) list.push_back(tensor_to_json(name, tensor, arena));
  return list;
}

Expected<TensorMap> tensors_from_json(const json& list, Arena arena) {
  OPDIFF_TRY(auto pairs, list_of(list, "tensors", [&](const json& t) { return tensor_from_json(t, arena); }));
  TensorMap tensors;
  for (auto& [name, tensor] : pairs)
    if (!tensors.emplace(name, std::move(tensor)).second) return make_error("tensor '{}' is given twice", name);
  return tensors;
}

json graph_to_json(const Graph& graph, ArenaBuilder& arena) {
  const auto infos = [](const std::vector<ValueInfo>& values) {
    json list = json::array();
    for (const ValueInfo& value : values) list.push_back(value_info_to_json(value));
    return list;
  };
  json opsets = json::object();
  for (const auto& [domain, version] : graph.opsets) opsets[domain] = version;
  json nodes = json::array();
  for (const Node& node : graph.nodes) {
    json attributes = json::object();
    for (const auto& [name, attribute] : node.attributes) attributes[name] = attribute_to_json(name, attribute, arena);
    nodes.push_back({{"id", node.id},
                     {"op", node.op},
                     {"domain", node.domain},
                     {"inputs", node.inputs},
                     {"outputs", node.outputs},
                     {"attributes", std::move(attributes)}});
  }
  return {{"name", graph.name},
          {"ir_version", graph.ir_version},
          {"opset", graph.opset()},
          {"opsets", std::move(opsets)},
          {"inputs", infos(graph.inputs)},
          {"outputs", infos(graph.outputs)},
          {"values", infos(graph.values)},
          {"initialisers", tensors_to_json(graph.initialisers, arena)},
          {"nodes", std::move(nodes)}};
}

Expected<Graph> graph_from_json(const json& object, Arena arena) { return graph_at_depth(object, arena, 0); }

nlohmann::json training_to_json(const Training& training) {
  return {{"cotangents", training.cotangents}, {"gradients", training.gradients}, {"backward", training.backward}};
}

}  // namespace opdiff
