#include "workers/reply.h"

#include <cmath>

#include "base/utf8.h"
#include "graph/graph_json.h"

namespace opdiff {
namespace {

using nlohmann::json;

constexpr int kMaximumDepth = 8;  // a reply of `run` is 4 deep
constexpr std::size_t kMaximumReason = 4000;

std::string one_line(std::string text) {
  if (text.size() > kMaximumReason) text.resize(kMaximumReason);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return escape_controls(replace_invalid_utf8(text));
}

Expected<std::string> string_of(const json& object, const char* key, bool required) {
  const auto found = object.find(key);
  if (found == object.end()) {
    if (required) return make_error("'{}' is missing", key);
    return std::string();
  }
  if (!found->is_string()) return make_error("'{}' is no string", key);
  return found->get<std::string>();
}

Expected<std::vector<std::string>> strings_of(const json& object, const char* key) {
  std::vector<std::string> result;
  const auto found = object.find(key);
  if (found == object.end()) return result;
  if (!found->is_array()) return make_error("'{}' is no list", key);
  for (const auto& item : *found) {
    if (!item.is_string()) return make_error("'{}' holds something that is no string", key);
    result.push_back(item.get<std::string>());
  }
  return result;
}

Expected<std::vector<std::string>> lines_of(const json& object, const char* key) {
  OPDIFF_TRY(auto result, strings_of(object, key));
  for (auto& text : result) text = one_line(std::move(text));
  return result;
}

Expected<bool> bool_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return false;
  if (!found->is_boolean()) return make_error("'{}' is neither true nor false", key);
  return found->get<bool>();
}

std::optional<OutcomeKind> outcome_from(const std::string& text) {
  // crash and timeout are the engine's to say
  for (const auto kind : {OutcomeKind::ok, OutcomeKind::unsupported, OutcomeKind::error, OutcomeKind::out_of_memory}) {
    if (to_string(kind) == text) return kind;
  }
  return std::nullopt;
}

Expected<std::pair<OutcomeKind, std::string>> outcome_of(const json& object) {
  OPDIFF_TRY(const auto text, string_of(object, "outcome", true));
  const auto kind = outcome_from(text);
  if (!kind) return make_error("outcome '{}' is none of ok, unsupported, error, out-of-memory", one_line(text));
  OPDIFF_TRY(auto reason, string_of(object, "reason", false));
  if (*kind != OutcomeKind::ok && reason.empty()) reason = "the worker gave no reason";
  return std::pair(*kind, one_line(std::move(reason)));
}

Expected<std::pair<std::string, Tensor>> output_of(const json& item, const FileDescriptor& arena,
                                                   std::int64_t* bytes_left) {
  if (!item.is_object()) return make_error("an output is no object");
  OPDIFF_TRY(const auto name, string_of(item, "name", true));
  OPDIFF_TRY(const auto dtype_text, string_of(item, "dtype", true));
  const auto dtype = parse_dtype(dtype_text);
  if (!dtype) return make_error("output '{}' has the unknown dtype '{}'", name, one_line(dtype_text));
  const auto dimensions = item.find("shape");
  if (dimensions == item.end() || !dimensions->is_array()) return make_error("output '{}' has no shape", name);
  Shape shape;
  for (const auto& dimension : *dimensions) {
    if (!dimension.is_number_integer())
      return make_error("output '{}' has a shape with something that is no integer", name);
    shape.push_back(dimension.get<std::int64_t>());
  }
  const auto offset = item.find("offset");
  if (offset == item.end() || !offset->is_number_integer()) return make_error("output '{}' has no offset", name);
  const auto count = checked_element_count(shape);
  if (!count) return with_context(fmt::format("output '{}'", name), count.error());
  // Counted against the whole, so that many names of one place cannot multiply it.
  *bytes_left -= *count * static_cast<std::int64_t>(dtype_size(*dtype));
  if (*bytes_left < 0)
    return make_error("output '{}' of shape {} is larger than the memory limit", name, to_string(shape));
  auto tensor = read_tensor(arena, *dtype, shape, offset->get<std::int64_t>());
  if (!tensor) return with_context(fmt::format("output '{}' of shape {}", name, to_string(shape)), tensor.error());
  return std::pair(name, *std::move(tensor));
}

std::optional<double> milliseconds(const json& value) {
  const auto number = number_from_json(value);
  if (!number || !std::isfinite(*number) || *number < 0) return std::nullopt;
  return *number;
}

}  // namespace

Expected<Reply> parse_reply(std::string_view text, std::int64_t id) {
  bool deep = false;
  const auto callback = [&deep](int depth, json::parse_event_t, json&) {
    if (depth > kMaximumDepth) deep = true;
    return depth <= kMaximumDepth;  // what is deeper is dropped while it is read
  };
  Reply reply;
  reply.body = json::parse(text, callback, /*allow_exceptions=*/false);
  if (reply.body.is_discarded() || !reply.body.is_object()) return make_error("its reply is no JSON object");
  if (deep) return make_error("its reply is nested more than {} deep", kMaximumDepth);
  const auto protocol = reply.body.find("protocol");
  if (protocol == reply.body.end() || *protocol != kProtocol) {
    return make_error("its reply is not of protocol {}", kProtocol);
  }
  const auto got = reply.body.find("id");
  if (got == reply.body.end() || !got->is_number_integer() || *got != id) {
    return make_error("its reply is not to request {}", id);
  }
  OPDIFF_TRY(auto outcome, outcome_of(reply.body));
  reply.outcome = outcome.first;
  reply.reason = std::move(outcome.second);
  return reply;
}

Expected<BackendInfo> read_hello(const json& reply) {
  BackendInfo info;
  OPDIFF_TRY(info.name, string_of(reply, "name", true).map(one_line));
  OPDIFF_TRY(info.version, string_of(reply, "version", true).map(one_line));
  OPDIFF_TRY(info.build, string_of(reply, "build", false).map(one_line));
  OPDIFF_TRY(info.device, string_of(reply, "device", false).map(one_line));
  OPDIFF_TRY(info.isa, string_of(reply, "isa", false).map(one_line));
  OPDIFF_TRY(info.operators, lines_of(reply, "operators"));
  OPDIFF_TRY(info.passes, lines_of(reply, "passes"));
  OPDIFF_TRY(info.gradient, bool_of(reply, "gradient"));
  OPDIFF_TRY(info.importing, bool_of(reply, "importing"));
  OPDIFF_TRY(const auto dtypes, strings_of(reply, "dtypes"));
  for (const auto& name : dtypes) {
    if (const auto dtype = parse_dtype(name)) info.dtypes.push_back(*dtype);  // it may know more types than we
  }
  return info;
}

Expected<std::optional<std::vector<Kernel>>> read_kernels(const json& reply, const std::set<std::string>& nodes) {
  const auto kernels = reply.find("kernels");
  if (kernels == reply.end()) return std::nullopt;
  if (!kernels->is_array()) return make_error("'kernels' is no list");
  std::vector<Kernel> result;
  for (const auto& item : *kernels) {
    if (!item.is_object()) return make_error("a kernel is no object");
    Kernel kernel;
    OPDIFF_TRY(kernel.name, string_of(item, "kernel", true).map(one_line));
    OPDIFF_TRY(kernel.nodes, strings_of(item, "nodes"));
    for (const auto& node : kernel.nodes) {
      if (!nodes.contains(node))
        return make_error("kernel '{}' stands for '{}', which is no node of the graph", kernel.name, one_line(node));
    }
    result.push_back(std::move(kernel));
  }
  return result;
}

Expected<Outcome> read_run(const json& reply, const FileDescriptor& arena, std::int64_t most_bytes) {
  Outcome outcome;
  const auto outputs = reply.find("outputs");
  if (outputs == reply.end() || !outputs->is_array()) return make_error("its reply has no list 'outputs'");
  for (const auto& item : *outputs) {
    OPDIFF_TRY(auto output, output_of(item, arena, &most_bytes));
    if (!outcome.outputs.emplace(output.first, std::move(output.second)).second) {
      return make_error("output '{}' is there twice", output.first);
    }
  }
  if (const auto times = reply.find("wall_ms"); times != reply.end() && times->is_array()) {
    for (const auto& time : *times) {
      if (const auto value = milliseconds(time)) outcome.wall_ms.push_back(*value);
    }
  }
  if (const auto peaks = reply.find("peak_bytes"); peaks != reply.end() && peaks->is_array()) {
    for (const auto& peak : *peaks) {
      if (peak.is_number_unsigned()) outcome.peak_bytes.push_back(peak.get<std::int64_t>());
    }
  }
  if (const auto time = reply.find("cpu_ms"); time != reply.end()) outcome.cpu_ms = milliseconds(*time).value_or(0);
  if (const auto times = reply.find("node_ms"); times != reply.end() && times->is_object()) {
    for (const auto& [node, time] : times->items()) {
      if (const auto value = milliseconds(time)) outcome.node_ms[node] = *value;
    }
  }
  if (const auto failures = reply.find("failures"); failures != reply.end() && !failures->is_null()) {
    if (!failures->is_object()) return make_error("'failures' is no object");
    for (const auto& [node, failure] : failures->items()) {
      if (!failure.is_object()) return make_error("the failure of node '{}' is no object", node);
      auto what = outcome_of(failure);
      if (!what) return with_context(fmt::format("the failure of node '{}'", node), what.error());
      if (what->first != OutcomeKind::ok) outcome.node_failures[node] = *std::move(what);
    }
  }
  return outcome;
}

}  // namespace opdiff
