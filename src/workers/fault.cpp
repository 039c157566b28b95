#include "workers/fault.h"

#include <algorithm>
#include <functional>

namespace opdiff {
namespace {

std::vector<std::size_t> positions(const Graph& graph, const std::function<bool(const Node&)>& wanted) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (wanted(graph.nodes[i])) result.push_back(i);
  }
  return result;
}

std::string kind_names() {
  std::string names;
  for (const auto& kind : fault_kinds()) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

template <class T>
Expected<void> read(const BackendSpec& spec, const char* key, std::optional<T>& into) {
  const auto found = spec.options.find(key);
  if (found == spec.options.end()) return {};
  into = parse_number<T>(found->second);
  if (!into) return make_error("'{}': {}={} is no number", to_string(spec), key, found->second);
  return {};
}

}  // namespace

std::string operator_name(const Node& node) {
  constexpr std::string_view kOwn = "opdiff.";
  if (node.domain.empty() || node.domain == "ai.onnx") return node.op;
  const bool own = node.domain.starts_with(kOwn);
  return (own ? node.domain.substr(kOwn.size()) : node.domain) + "." + node.op;
}

Expected<std::size_t> changed_output(const Node& node, const Fault& fault) {
  if (fault.output) {
    const auto output = static_cast<std::size_t>(*fault.output);
    if (*fault.output < 0 || output >= node.outputs.size() || node.outputs[output].empty())
      return make_error("it gives no output {}", *fault.output);
    return output;
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (!node.outputs[i].empty()) return i;
  return make_error("it gives no output");
}

std::set<std::string> reached(const Graph& graph, const std::vector<std::size_t>& seeds) {
  std::set<std::string> tensors;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto& node = graph.nodes[i];
    const bool seed = std::find(seeds.begin(), seeds.end(), i) != seeds.end();
    if (seed ||
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](const auto& name) { return tensors.contains(name); })) {
      tensors.insert(node.outputs.begin(), node.outputs.end());
      tensors.erase("");  // the absent input of another node is not it
    }
  }
  return tensors;
}

std::vector<std::size_t> matches(const Graph& graph, const Fault& fault) {
  std::string node = fault.node;
  if (!fault.pair_to.empty()) {
    const auto first = positions(graph, [&](const Node& item) { return item.id == fault.pair_from; });
    const auto second = positions(graph, [&](const Node& item) { return item.id == fault.pair_to; });
    if (first.empty() || second.empty()) return {};
    const auto tensors = reached(graph, first);
    const auto& inputs = graph.nodes[second[0]].inputs;
    if (std::none_of(inputs.begin(), inputs.end(), [&](const auto& name) { return tensors.contains(name); })) return {};
    if (node.empty() && fault.op.empty()) node = fault.pair_to;
  }
  return positions(graph, [&](const Node& item) {
    const bool ours = item.id.find(kFaultMark) != std::string::npos;  // added by a fault on top of this one
    return !ours && (node.empty() || item.id == node) && (fault.op.empty() || operator_name(item) == fault.op);
  });
}

Expected<Fault> parse_fault(const BackendSpec& spec) {
  static const std::set<std::string> known = {"base",     "op",    "node",      "fault", "size",
                                              "relative", "index", "axis",      "count", "input",
                                              "output",   "to",    "attribute", "value", "pair"};
  for (const auto& [key, value] : spec.options) {
    if (!known.contains(key))
      return make_error("'{}': unknown option '{}'; see: opdiff backend list faulty", to_string(spec), key);
  }
  Fault fault;
  const std::string name = spec.option("fault");
  for (const auto& kind : fault_kinds()) {
    if (name == kind.name) fault.kind = &kind;
  }
  if (!fault.kind) return make_error("'{}': fault={} is none of {}", to_string(spec), name, kind_names());
  fault.op = spec.option("op");
  fault.node = spec.option("node");
  if (const std::string pair = spec.option("pair"); !pair.empty()) {
    const auto plus = pair.find('+');
    fault.pair_from = pair.substr(0, plus);
    if (plus != std::string::npos) fault.pair_to = pair.substr(plus + 1);
    if (fault.pair_from.empty() || fault.pair_to.empty())
      return make_error("'{}': pair={} is not of the form NODE+NODE", to_string(spec), pair);
  }
  if (fault.op.empty() && fault.node.empty() && fault.pair_to.empty()) {
    return make_error("'{}': say where, with op=OPERATOR, node=ID or pair=ID+ID", to_string(spec));
  }
  OPDIFF_RETURN_IF_ERROR(read(spec, "size", fault.size));
  OPDIFF_RETURN_IF_ERROR(read(spec, "relative", fault.relative));
  OPDIFF_RETURN_IF_ERROR(read(spec, "index", fault.index));
  OPDIFF_RETURN_IF_ERROR(read(spec, "axis", fault.axis));
  OPDIFF_RETURN_IF_ERROR(read(spec, "count", fault.count));
  OPDIFF_RETURN_IF_ERROR(read(spec, "input", fault.input));
  OPDIFF_RETURN_IF_ERROR(read(spec, "output", fault.output));
  if (fault.count.value_or(1) < 1) return make_error("'{}': count must be at least 1", to_string(spec));
  const auto to = parse_dtype(spec.option("to", "bfloat16"));
  if (!to || !is_float(*to)) return make_error("'{}': to={} is no floating type", to_string(spec), spec.option("to"));
  fault.to = *to;
  fault.attribute = spec.option("attribute");
  fault.value = spec.option("value");
  return fault;
}

}  // namespace opdiff
