#include "workers/graph_edit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/meta_operator.h"
#include "reference/evaluate.h"

namespace opdiff {
namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

Tensor integers(const std::vector<std::int64_t>& values) {
  return Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(values.size())}, values);
}

// The shape of a tensor, where the graph says it.
std::optional<Shape> shape_of(const Graph& graph, const std::string& tensor) {
  std::map<std::string, TensorType> inputs;
  for (const auto& input : graph.inputs) {
    TensorType type{input.dtype, Shape()};
    if (!input.shape) type.shape.reset();
    for (const auto& dimension : input.shape.value_or(std::vector<Dimension>())) {
      if (!dimension.value) type.shape.reset();
      if (type.shape) type.shape->push_back(*dimension.value);
    }
    inputs[input.name] = std::move(type);
  }
  const auto types = infer_types(graph, inputs);
  if (!types) return std::nullopt;
  const auto found = types->find(tensor);
  return found == types->end() ? std::nullopt : found->second.shape;
}

}  // namespace

const Node* GraphEdit::maker_of(const std::string& tensor) const {
  for (const auto& node : graph_.nodes) {
    if (std::find(node.outputs.begin(), node.outputs.end(), tensor) != node.outputs.end()) return &node;
  }
  return nullptr;
}

DType GraphEdit::dtype_of(const std::string& tensor) const {
  std::string name = tensor;
  // At most one step a node: a graph is finite and without cycles, but it may come from a broken model.
  for (std::size_t step = 0; step <= graph_.nodes.size(); ++step) {
    if (const auto found = graph_.initialisers.find(name); found != graph_.initialisers.end())
      return found->second.dtype();
    for (const auto* list : {&graph_.inputs, &graph_.outputs, &graph_.values}) {
      for (const auto& value : *list) {
        if (value.name == name) return value.dtype;
      }
    }
    const Node* maker = maker_of(name);
    if (!maker) break;
    if (maker->domain == kGradientDomain) {  // each gradient is of its input's type
      const auto output = std::find(maker->outputs.begin(), maker->outputs.end(), name) - maker->outputs.begin();
      if (static_cast<std::size_t>(output) >= maker->inputs.size()) break;
      name = maker->inputs[static_cast<std::size_t>(output)];
      continue;
    }
    if (maker->op == "Shape") return DType::i64;
    if (const auto to = maker->attributes.find("to"); maker->op == "Cast" && to != maker->attributes.end()) {
      if (const auto* code = std::get_if<std::int64_t>(&to->second)) {
        return dtype_from_onnx_code(static_cast<int>(*code)).value_or(DType::f32);
      }
    }
    if (const auto value = maker->attributes.find("value");
        maker->op == "Constant" && value != maker->attributes.end()) {
      if (const auto* held = std::get_if<Tensor>(&value->second)) return held->dtype();
    }
    if (maker->inputs.empty()) break;
    name = maker->inputs[0];
  }
  return DType::f32;
}

std::size_t GraphEdit::position_of(const std::string& id) const {
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (graph_.nodes[i].id == id) return i;
  }
  OPDIFF_CHECK(false);
  return 0;
}

GraphEdit::GraphEdit(Graph& graph) : graph_(graph) {
  for (const auto& [name, tensor] : graph_.initialisers) taken_.insert(name);
  for (const auto& input : graph_.inputs) taken_.insert(input.name);
  for (const auto& node : graph_.nodes) {
    taken_.insert(node.id);
    taken_.insert(node.outputs.begin(), node.outputs.end());
  }
}

std::string GraphEdit::fresh(const std::string& stem) {
  for (int number = 1;; ++number) {
    std::string name = fmt::format("{}{}{}", stem, kFaultMark, number);
    if (taken_.insert(name).second) return name;
  }
}

std::string GraphEdit::constant(const std::string& stem, Tensor value) {
  const std::string name = fresh(stem);
  graph_.initialisers[name] = std::move(value);
  return name;
}

std::string GraphEdit::add(std::vector<Node>& nodes, const std::string& stem, std::string op,
                           std::vector<std::string> inputs, std::map<std::string, Attribute> attributes,
                           std::string output) {
  Node node;
  node.id = fresh(stem);
  node.op = std::move(op);
  node.inputs = std::move(inputs);
  node.outputs = {output.empty() ? node.id : output};
  node.attributes = std::move(attributes);
  nodes.push_back(std::move(node));
  return nodes.back().outputs[0];
}

void GraphEdit::insert(std::size_t position, std::vector<Node> nodes) {
  graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(position),
                      std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
}

Expected<std::string> GraphEdit::apply(std::vector<Node>& nodes, const std::string& stem, const std::string& input,
                                       DType dtype, const Change& change, const std::string& output) {
  const bool multiply = change.factor != 1;
  const double wanted = multiply ? change.factor : change.offset;
  const double neutral = multiply ? 1 : 0;
  if (!is_float(dtype) && (wanted != std::trunc(wanted) || !is_integer(dtype))) {
    return make_error("{} of {} cannot be {} by {}", dtype_name(dtype), stem, multiply ? "scaled" : "moved", wanted);
  }
  Tensor scalar = Tensor::scalar_like(dtype, wanted);
  if (scalar.at(0) == neutral) return make_error("{:g} rounded to {} changes nothing", wanted, dtype_name(dtype));
  const std::string operand = constant(stem, std::move(scalar));
  return add(nodes, stem, multiply ? "Mul" : "Add", {input, operand}, {}, output);
}

std::string GraphEdit::slice(std::vector<Node>& nodes, const std::string& stem, const std::string& input,
                             std::int64_t start, std::int64_t end, std::int64_t axis) {
  if (graph_.opset() < 10) {
    return add(nodes, stem, "Slice", {input},
               {{"starts", std::vector<std::int64_t>{start}},
                {"ends", std::vector<std::int64_t>{end}},
                {"axes", std::vector<std::int64_t>{axis}}});
  }
  return add(
      nodes, stem, "Slice",
      {input, constant(stem, integers({start})), constant(stem, integers({end})), constant(stem, integers({axis}))});
}

Expected<std::string> GraphEdit::apply(std::vector<Node>& nodes, const std::string& stem, const std::string& input,
                                       DType dtype, const Change& change, const Region& region,
                                       const std::string& output) {
  std::string whole = input;
  if (!region.axis) whole = add(nodes, stem, "Reshape", {input, constant(stem, integers({-1}))});
  const std::int64_t axis = region.axis.value_or(0);
  const std::int64_t start = region.index, end = region.index + region.count;
  std::vector<std::string> parts;
  if (start != 0) parts.push_back(slice(nodes, stem, whole, 0, start, axis));
  const bool to_the_end = start < 0 && end >= 0;
  OPDIFF_TRY(auto middle,
             apply(nodes, stem, slice(nodes, stem, whole, start, to_the_end ? kEnd : end, axis), dtype, change));
  parts.push_back(std::move(middle));
  if (!to_the_end) parts.push_back(slice(nodes, stem, whole, end, kEnd, axis));
  if (region.axis) return add(nodes, stem, "Concat", parts, {{"axis", axis}}, output);
  const std::string flat = add(nodes, stem, "Concat", parts, {{"axis", std::int64_t{0}}});
  const std::string shape = add(nodes, stem, "Shape", {input});
  return add(nodes, stem, "Reshape", {flat, shape}, {}, output);
}

Expected<void> GraphEdit::check_region(const std::string& name, const Region& region) const {
  const std::optional<Shape> shape = shape_of(graph_, name);
  if (!shape) return {};
  std::int64_t extent = element_count(*shape);
  if (region.axis) {
    OPDIFF_TRY(const int axis, normalise_axis(*region.axis, static_cast<std::int64_t>(shape->size())));
    extent = (*shape)[static_cast<std::size_t>(axis)];
  }
  if (region.index < -extent || region.index >= extent)
    return make_error("index={}: '{}' has {} {}", region.index, name, extent,
                      region.axis ? fmt::format("slices along axis {}", *region.axis) : "elements");
  return {};
}

Expected<void> GraphEdit::change_output(std::size_t position, const std::string& name, const Change& change) {
  const std::string stem = graph_.nodes[position].id, before = fresh(name);
  std::vector<Node> nodes;
  OPDIFF_TRY(const auto result, apply(nodes, stem, before, dtype_of(name), change, name));
  auto& outputs = graph_.nodes[position].outputs;
  std::replace(outputs.begin(), outputs.end(), name, before);
  insert(position + 1, std::move(nodes));
  return {};
}

Expected<void> GraphEdit::change_output(std::size_t position, const std::string& name, const Change& change,
                                        const Region& region) {
  OPDIFF_RETURN_IF_ERROR(check_region(name, region));
  const std::string stem = graph_.nodes[position].id, before = fresh(name);
  std::vector<Node> nodes;
  OPDIFF_TRY(const auto result, apply(nodes, stem, before, dtype_of(name), change, region, name));
  auto& outputs = graph_.nodes[position].outputs;
  std::replace(outputs.begin(), outputs.end(), name, before);
  insert(position + 1, std::move(nodes));
  return {};
}

void GraphEdit::add_fed_tensor(std::size_t position, const std::string& name) {
  ValueInfo input;
  input.name = fresh(name);
  input.dtype = dtype_of(name);
  for (const auto* list : {&graph_.outputs, &graph_.values}) {
    for (const auto& value : *list) {
      if (value.name == name) input.shape = value.shape;
    }
  }
  const std::string before = fresh(name);
  std::vector<Node> nodes;
  add(nodes, graph_.nodes[position].id, "Add", {before, input.name}, {}, name);
  auto& outputs = graph_.nodes[position].outputs;
  std::replace(outputs.begin(), outputs.end(), name, before);
  insert(position + 1, std::move(nodes));
  graph_.inputs.push_back(std::move(input));
}

Expected<void> GraphEdit::change_input(std::size_t position, std::size_t input, const Change& change,
                                       const Region& region) {
  const std::string stem = graph_.nodes[position].id, name = graph_.nodes[position].inputs[input];
  OPDIFF_RETURN_IF_ERROR(check_region(name, region));
  std::vector<Node> nodes;
  OPDIFF_TRY(const auto result, apply(nodes, stem, name, dtype_of(name), change, region));
  graph_.nodes[position].inputs[input] = result;
  insert(position, std::move(nodes));
  return {};
}

Expected<void> GraphEdit::round_input(std::size_t position, std::size_t input, DType dtype) {
  const std::string stem = graph_.nodes[position].id, name = graph_.nodes[position].inputs[input];
  const DType own = dtype_of(name);
  if (!is_float(own) || own == dtype)
    return make_error("input '{}' is {}: rounding it to {} changes nothing", name, dtype_name(own), dtype_name(dtype));
  if (const auto found = graph_.initialisers.find(name); found != graph_.initialisers.end()) {
    const auto rounded = Tensor::from_doubles(dtype, found->second.shape(), found->second.to_doubles()).to_doubles();
    replace_initialiser(position, input, Tensor::from_doubles(own, found->second.shape(), rounded));
    return {};
  }
  if (dtype == DType::bf16 && graph_.opset() < 13)
    return make_error("bfloat16 needs opset 13; this model has {}", graph_.opset());
  std::vector<Node> nodes;
  const std::string narrow = add(nodes, stem, "Cast", {name}, {{"to", std::int64_t{onnx_code(dtype)}}});
  graph_.nodes[position].inputs[input] = add(nodes, stem, "Cast", {narrow}, {{"to", std::int64_t{onnx_code(own)}}});
  insert(position, std::move(nodes));
  return {};
}

void GraphEdit::replace_initialiser(std::size_t position, std::size_t input, Tensor value) {
  const std::string name = constant(graph_.nodes[position].inputs[input], std::move(value));
  graph_.nodes[position].inputs[input] = name;
}

}  // namespace opdiff
