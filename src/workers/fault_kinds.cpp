#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/evaluate.h"
#include "workers/fault.h"
#include "workers/fed_faults.h"

namespace opdiff {
namespace {

Change change_of(const Fault& fault) {
  if (fault.relative) return {.factor = 1 + *fault.relative};
  return {.offset = fault.size.value_or(1)};
}

Expected<std::string> output_of(const Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  OPDIFF_TRY(const std::size_t output, changed_output(node, fault));
  return node.outputs[output];
}

Expected<void> change(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault, const Change& change) {
  OPDIFF_TRY(const std::string output, output_of(graph, position, fault));
  return edit.change_output(position, output, change);
}

Expected<void> change(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault, const Change& change,
                      const Region& region) {
  OPDIFF_TRY(const std::string output, output_of(graph, position, fault));
  return edit.change_output(position, output, change, region);
}

Expected<void> scale(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return change(edit, graph, position, fault, {.factor = 1 + std::exp2(-fault.size.value_or(10))});
}
Expected<void> offset(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return change(edit, graph, position, fault, {.offset = fault.size.value_or(1)});
}
Expected<void> negate(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return change(edit, graph, position, fault, {.factor = -1});
}
Expected<void> element(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return change(edit, graph, position, fault, change_of(fault), {{}, fault.index.value_or(0), 1});
}
// Of all fed faults: the output takes a tensor on top.
Expected<void> feed(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  if (!has_reference(node, graph.opset(node.domain))) return make_error("it has no reference to work the fault out");
  OPDIFF_TRY(const std::string output, output_of(graph, position, fault));
  if (!is_float(edit.dtype_of(output))) return make_error("it gives no floating-point numbers");
  edit.add_fed_tensor(position, output);
  return {};
}
Expected<void> not_a_number(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return change(edit, graph, position, fault, {.offset = std::numeric_limits<double>::quiet_NaN()},
                {{}, fault.index.value_or(0), 1});
}
Expected<void> row(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  return change(edit, graph, position, fault, change_of(fault),
                {fault.axis.value_or(0), fault.index.value_or(0), fault.count.value_or(1)});
}
Expected<void> tail(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const std::int64_t count = fault.count.value_or(1);
  return change(edit, graph, position, fault, change_of(fault), {fault.axis.value_or(-1), -count, count});
}

std::int64_t integer_attribute(const Node& node, const char* name) {
  const auto found = node.attributes.find(name);
  const auto* value = found == node.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value ? *value : 0;
}

Expected<std::size_t> weight_of(const Node& node, const Fault& fault) {
  const auto input = static_cast<std::size_t>(fault.input.value_or(1));
  if (input >= node.inputs.size() || node.inputs[input].empty()) return make_error("it has no input {}", input);
  return input;
}

// The axis of a weight that is summed over.
Expected<void> drop_channel(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  OPDIFF_TRY(const std::size_t input, weight_of(node, fault));
  std::int64_t axis = 0;
  if (node.op == "Conv") axis = 1;
  if (node.op == "Gemm") axis = integer_attribute(node, "transB") ? 1 : 0;
  if (node.op == "MatMul") axis = -2;
  return edit.change_input(position, input, {.factor = 0}, {fault.axis.value_or(axis), fault.index.value_or(0), 1});
}

Expected<void> drop_term(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  OPDIFF_TRY(const std::size_t input, weight_of(node, fault));
  const auto found = graph.initialisers.find(node.inputs[input]);
  if (found == graph.initialisers.end() || found->second.size() == 0) {
    return edit.change_input(position, input, {.factor = 0}, {{}, fault.index.value_or(0), 1});
  }
  const Tensor weight = found->second;
  std::int64_t index = fault.index.value_or(0);
  if (!fault.index) {
    for (std::int64_t i = 1; i < weight.size(); ++i) {
      if (std::abs(weight.at(i)) > std::abs(weight.at(index))) index = i;
    }
  }
  if (index < 0) index += weight.size();
  if (index < 0 || index >= weight.size())
    return make_error("index={}: '{}' has {} elements", *fault.index, node.inputs[input], weight.size());
  auto values = weight.to_doubles();
  values[static_cast<std::size_t>(index)] = 0;
  edit.replace_initialiser(position, input, Tensor::from_doubles(weight.dtype(), weight.shape(), values));
  return {};
}

Expected<void> round_operand(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (fault.input ? static_cast<std::size_t>(*fault.input) != i
                    : node.inputs[i].empty() || !is_float(edit.dtype_of(node.inputs[i])))
      continue;
    return edit.round_input(position, i, fault.to);
  }
  return make_error("it has no floating-point operand");
}

Expected<void> transpose(GraphEdit& edit, Graph& graph, std::size_t position, const Fault& fault) {
  const Node& node = graph.nodes[position];
  OPDIFF_TRY(const std::size_t input, weight_of(node, fault));
  const auto found = graph.initialisers.find(node.inputs[input]);
  if (found == graph.initialisers.end()) return make_error("its input {} is no initialiser", input);
  const Tensor& weight = found->second;
  const auto rank = weight.shape().size();
  if (rank < 2 || weight.shape()[rank - 1] != weight.shape()[rank - 2]) {
    return make_error("the last two dimensions of '{}', of shape {}, are not equal", node.inputs[input],
                      to_string(weight.shape()));
  }
  const auto n = static_cast<std::size_t>(weight.shape()[rank - 1]);
  const auto values = weight.to_doubles();
  auto swapped = values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / n % n, column = i % n;
    swapped[i - row * n - column + column * n + row] = values[i];
  }
  edit.replace_initialiser(position, input, Tensor::from_doubles(weight.dtype(), weight.shape(), swapped));
  return {};
}

// "2" int, "0.5" float, "1;1;" ints, "SAME_LOWER" string, unless the attribute that is there says otherwise.
Expected<void> attribute(GraphEdit&, Graph& graph, std::size_t position, const Fault& fault) {
  auto& attributes = graph.nodes[position].attributes;
  if (fault.attribute.empty()) return make_error("attribute=NAME is missing");
  if (fault.value == "none") {
    attributes.erase(fault.attribute);
    return {};
  }
  const auto found = attributes.find(fault.attribute);
  const bool list = fault.value.find(';') != std::string::npos ||
                    (found != attributes.end() && std::holds_alternative<std::vector<std::int64_t>>(found->second));
  if (list) {
    std::vector<std::int64_t> values;
    for (std::size_t start = 0; start < fault.value.size();) {
      const auto end = std::min(fault.value.find(';', start), fault.value.size());
      const auto item = parse_number<std::int64_t>(fault.value.substr(start, end - start));
      if (!item) return make_error("value={} is no list of integers such as 0;0;1;1", fault.value);
      values.push_back(*item);
      start = end + 1;
    }
    attributes[fault.attribute] = values;
    return {};
  }
  const bool is_float_now = found != attributes.end() && std::holds_alternative<float>(found->second);
  if (const auto value = parse_number<std::int64_t>(fault.value); value && !is_float_now) {
    attributes[fault.attribute] = *value;
  } else if (const auto real = parse_number<double>(fault.value)) {
    attributes[fault.attribute] = static_cast<float>(*real);
  } else {
    attributes[fault.attribute] = fault.value;
  }
  return {};
}

// One element of padding on the other side, along every axis that has any.
Expected<void> shift_pads(GraphEdit&, Graph& graph, std::size_t position, const Fault&) {
  auto& attributes = graph.nodes[position].attributes;
  const auto found = attributes.find("pads");
  auto* pads = found == attributes.end() ? nullptr : std::get_if<std::vector<std::int64_t>>(&found->second);
  bool shifted = false;
  for (std::size_t i = 0, half = pads ? pads->size() / 2 : 0; i < half; ++i) {
    const bool to_the_end = (*pads)[i] > 0;
    if ((*pads)[i] <= 0 && (*pads)[i + half] <= 0) continue;
    (*pads)[i] += to_the_end ? -1 : 1;
    (*pads)[i + half] += to_the_end ? 1 : -1;
    shifted = true;
  }
  if (!shifted) return make_error("its attribute 'pads' pads nothing");
  return {};
}

constexpr FaultKind kKinds[] = {
    {"scale", FaultPlace::graph, scale, "output times 1 + 2^-size (default size 10)"},
    {"offset", FaultPlace::graph, offset, "output plus size (default 1)"},
    {"negate", FaultPlace::graph, negate, "output times -1"},
    {"element", FaultPlace::graph, element,
     "one element, flat `index` (default 0; negative from the end), plus size, or times 1 + relative"},
    {"deviations", FaultPlace::fed, feed,
     "output plus size (default 4) times its own deviation; with `index`, this element only", add_deviations},
    {"nan", FaultPlace::graph, not_a_number, "one element, flat `index`, is NaN"},
    {"row", FaultPlace::graph, row,
     "`count` slices from `index` on along `axis` (default 0) plus size, or times 1 + relative"},
    {"tail", FaultPlace::graph, tail,
     "the last `count` (default 1) along `axis` (default the last) plus size, or times 1 + relative"},
    {"drop-channel", FaultPlace::graph, drop_channel,
     "slice `index` of the weight (`input`, default 1) along its summed axis is zero"},
    {"drop-term", FaultPlace::graph, drop_term, "one weight (`index`; default the largest) is zero"},
    {"transpose", FaultPlace::graph, transpose, "the weight's last two dimensions, which must be equal, are swapped"},
    {"shift-pads", FaultPlace::graph, shift_pads, "one element of padding is on the other side, along every axis"},
    {"round-operand", FaultPlace::graph, round_operand,
     "first floating operand (or `input`) rounded to `to` (bfloat16, float16) and back"},
    {"attribute", FaultPlace::graph, attribute,
     "`attribute` is `value`: attribute=pads,value=0;0;0;0 (none: it is removed)"},
    {"unsummed", FaultPlace::fed, feed,
     "of a gradient: only slice `index` (default 0) of the cotangent along `axis` (default 0) is summed", add_unsummed},
    {"mean-for-sum", FaultPlace::fed, feed,
     "of a gradient: divided by the cotangent's dimension `axis` (default 0), a mean in place of the sum",
     add_mean_for_sum},
    {"undivided", FaultPlace::fed, feed, "of a mean's or an average's gradient: not divided by the count",
     add_undivided},
    {"kink", FaultPlace::fed, feed, "of a gradient: the slope at X + size (default 0.25), so that a kink is elsewhere",
     add_wrong_kink},
    {"stale", FaultPlace::result, nullptr, "outputs that the node reaches are those of the run before (first: zeros)"},
    {"wrong-shape", FaultPlace::result, nullptr, "outputs that the node reaches have a further dimension of 1"},
    {"wrong-dtype", FaultPlace::result, nullptr, "outputs that the node reaches are double (of double: float)"},
    {"crash", FaultPlace::process, nullptr, "the worker gets a segmentation fault in a run with the node"},
    {"hang", FaultPlace::process, nullptr, "the worker stops in a run with the node"},
};

}  // namespace

std::span<const FaultKind> fault_kinds() { return kKinds; }

}  // namespace opdiff
