#include "node_builder.h"

#include <oneapi/dnnl/dnnl_debug.h>

#include <cstring>

namespace opdiff::onednn {
namespace {

double element(const Value& value, std::size_t index) {
  const std::byte* at = value.data() + index * sdk::element_size(value.dtype);
  if (value.dtype == "float") {
    float number;
    std::memcpy(&number, at, sizeof number);
    return number;
  }
  if (value.dtype == "float16") {
    _Float16 number;
    std::memcpy(&number, at, sizeof number);
    return static_cast<double>(number);
  }
  if (value.dtype == "bfloat16") {
    std::uint16_t upper;
    std::memcpy(&upper, at, sizeof upper);
    const std::uint32_t bits = std::uint32_t{upper} << 16;
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
  }
  if (value.dtype == "bool") return static_cast<double>(*at);
  throw sdk::Unsupported("a scalar of dtype " + value.dtype);
}

std::size_t cotangents_of(const sdk::Node& node) {
  if (node.domain != kGradientDomain) return 0;
  const std::int64_t count = node.integer("cotangents", 1);
  if (count < 1 || static_cast<std::size_t>(count) > node.inputs.size())
    throw std::invalid_argument("attribute 'cotangents' is " + std::to_string(count));
  return static_cast<std::size_t>(count);
}

// How a binary post-operation sees its operand: one number, one for each channel, or (in any layout) all elements.
Desc post_operand_layout(const Value& operand, const Shape& shape, std::size_t channel) {
  if (operand.shape.size() > shape.size()) throw sdk::Unsupported("an operand of higher rank cannot be fused");
  const Shape dims = with_leading_ones(operand.shape, shape.size());
  if (dims == shape) return any_layout(operand.dtype, dims);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != 1 && (i != channel || dims[i] != shape[i]))
      throw sdk::Unsupported("an operand of shape " + sdk::to_string(operand.shape) + " cannot be fused");
  }
  return dense(operand.dtype, dims);
}

std::string post_operations_of(const_dnnl_primitive_desc_t description) {
  const_dnnl_primitive_attr_t attributes = nullptr;
  const_dnnl_post_ops_t operations = nullptr;
  dnnl::error::wrap_c_api(dnnl_primitive_desc_get_attr(description, &attributes), "attributes");
  dnnl::error::wrap_c_api(dnnl_primitive_attr_get_post_ops(attributes, &operations), "post-operations");
  std::string text;
  for (int i = 0; i < dnnl_post_ops_len(operations); ++i) {
    dnnl_alg_kind_t algorithm{};
    float alpha = 0, beta = 0;
    const_dnnl_memory_desc_t operand = nullptr;
    const auto kind = dnnl_post_ops_get_kind(operations, i);
    text += i == 0 ? " post:" : "+";
    if (kind == dnnl_eltwise &&
        dnnl_post_ops_get_params_eltwise(operations, i, &algorithm, &alpha, &beta) == dnnl_success) {
      text += dnnl_alg_kind2str(algorithm);
    } else if (kind == dnnl_binary &&
               dnnl_post_ops_get_params_binary(operations, i, &algorithm, &operand) == dnnl_success) {
      text += dnnl_alg_kind2str(algorithm);
    } else {
      text += dnnl_prim_kind2str(kind);
    }
  }
  return text;
}

}  // namespace

std::string name_of(const dnnl::primitive& primitive) {
  const auto description = primitive.get_primitive_desc();
  const char* implementation = nullptr;
  dnnl::error::wrap_c_api(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &implementation),
                          "implementation");
  std::string name = dnnl_prim_kind2str(static_cast<dnnl_primitive_kind_t>(primitive.get_kind()));
  name += std::string(":") + implementation + post_operations_of(description);
  unsigned flags = 0;
  if (primitive.get_kind() == dnnl::primitive::kind::batch_normalization &&
      dnnl_primitive_desc_query(description, dnnl_query_flags, 0, &flags) == dnnl_success &&
      (flags & dnnl_fuse_norm_relu) != 0) {
    name += " post:fuse_norm_relu";
  }
  return name;
}

void Kernel::execute() {
  for (auto& step : steps) {
    if (step.host) {
      step.host();
    } else {
      step.primitive.execute(stream(), step.arguments);
    }
  }
  stream().wait();
  for (const auto& [name, buffer] : written) {
    if (!buffer.intact()) throw std::runtime_error("oneDNN wrote outside the memory of '" + name + "'");
  }
}

NodeBuilder::NodeBuilder(const sdk::Node& node, std::int64_t opset, ValueMap& values, bool everything_known,
                         const Fusion* fusion)
    : node_(node),
      cotangents_(cotangents_of(node)),
      opset_(opset),
      values_(values),
      everything_known_(everything_known),
      fusion_(fusion) {}

bool NodeBuilder::has(std::size_t index) const { return index < input_count() && !node_.inputs[index].empty(); }

bool NodeBuilder::wants_output(std::size_t index) const {
  return index < node_.outputs.size() && !node_.outputs[index].empty();
}

const Value& NodeBuilder::value_named(const std::string& name, const std::string& what) const {
  const auto found = values_.find(name);
  if (found == values_.end()) {
    throw std::invalid_argument(what + " '" + name +
                                "' is produced by no earlier node and is no graph input or initialiser");
  }
  return found->second;
}

const Value& NodeBuilder::input(std::size_t index) const {
  if (!has(index)) throw std::invalid_argument("input " + std::to_string(index) + " is missing");
  return value_named(node_.inputs[index], "input " + std::to_string(index));
}

const Value& NodeBuilder::floating(std::size_t index) const {
  const Value& value = input(index);
  if (!is_floating(value.dtype)) {
    throw sdk::Unsupported("input " + std::to_string(index) + " has dtype " + value.dtype +
                           "; oneDNN computes this operator in float, float16 and bfloat16");
  }
  return value;
}

const Value& NodeBuilder::cotangent() const {
  if (!is_gradient() || node_.inputs[input_count()].empty()) throw sdk::Unsupported("no cotangent of output 0");
  const Value& value = value_named(node_.inputs[input_count()], "cotangent");
  if (!is_floating(value.dtype)) throw sdk::Unsupported("a cotangent of dtype " + value.dtype);
  return value;
}

bool NodeBuilder::wants_gradient(std::size_t index) const {
  return wants_output(index) && has(index) && sdk::element_count(input(index).shape) > 0;
}

Value& NodeBuilder::gradient(std::size_t index) { return output(index, input(index).dtype, input(index).shape); }

Value& NodeBuilder::gradient(std::size_t index, const Desc& layout) {
  return output(index, input(index).dtype, input(index).shape, layout);
}

bool NodeBuilder::gradients_are_empty(const Shape& shape) {
  if (cotangent().shape != shape) {
    throw std::invalid_argument("the cotangent has shape " + sdk::to_string(cotangent().shape) + "; expected " +
                                sdk::to_string(shape));
  }
  bool empty = true;
  for (std::size_t i = 0; i < input_count(); ++i) {
    if (wants_gradient(i)) {
      empty = false;
    } else if (wants_output(i)) {
      gradient(i);
    }
  }
  if (!empty && sdk::element_count(shape) == 0) throw sdk::Unsupported("a gradient that sums over nothing");
  return empty;
}

std::vector<std::int64_t> NodeBuilder::integers(std::size_t index) const {
  const Value& value = input(index);
  if (!value.known && !everything_known_) throw NotYetKnown{};
  const std::size_t count = sdk::element_count(value.shape);
  std::vector<std::int64_t> result(count);
  if (value.dtype == "int64") {
    if (count > 0) std::memcpy(result.data(), value.data(), count * sizeof(std::int64_t));
  } else if (value.dtype == "int32") {
    for (std::size_t i = 0; i < count; ++i) result[i] = reinterpret_cast<const std::int32_t*>(value.data())[i];
  } else {
    throw std::invalid_argument("input " + std::to_string(index) + " has dtype " + value.dtype +
                                "; expected int64 or int32");
  }
  return result;
}

double NodeBuilder::scalar(std::size_t index) const {
  const Value& value = input(index);
  if (sdk::element_count(value.shape) != 1) {
    throw std::invalid_argument("input " + std::to_string(index) + " has shape " + sdk::to_string(value.shape) +
                                "; expected one element");
  }
  if (!value.known && !everything_known_) throw NotYetKnown{};
  return element(value, 0);
}

dnnl::memory NodeBuilder::in_layout(const Value& value, const Desc& wanted) {
  if (value.memory.get_desc() == wanted) return value.memory;
  dnnl::memory copy = scratch(wanted);
  if (value.known) {
    dnnl::memory from = value.memory;
    dnnl::reorder(from, copy).execute(stream(), from, copy);
    stream().wait();
  } else {
    add_reorder(value.memory, copy);
  }
  return copy;
}

dnnl::memory NodeBuilder::in_layout(const Value& value, const Desc& seen, const Desc& wanted) {
  dnnl::memory from = dense_view(value, seen);
  if (seen == wanted) return from;
  dnnl::memory copy = scratch(wanted);
  if (value.known) {
    dnnl::reorder(from, copy).execute(stream(), from, copy);
    stream().wait();
  } else {
    add_reorder(from, copy);
  }
  return copy;
}

dnnl::memory NodeBuilder::dense_memory(const Value& value) { return in_layout(value, dense(value.dtype, value.shape)); }

dnnl::memory NodeBuilder::dense_view(const Value& value, const Desc& seen) {
  const dnnl::memory base = dense_memory(value);
  dnnl::memory view(seen, engine(), base.get_data_handle());
  // Once everything is known, the data are where they will be for as long as this kernel lives.
  if (base.get() == value.memory.get() && !everything_known_) value.views->push_back(view);
  return view;
}

dnnl::primitive_attr NodeBuilder::with_post_operations(const std::string& dtype, const Shape& shape,
                                                       dnnl::primitive_attr attributes) {
  sum_operand_.clear();
  post_operands_.clear();
  if (!fusion_) return attributes;
  dnnl::post_ops operations;
  std::string previous = node_.outputs.at(0);
  for (const sdk::Node* follower : fusion_->followers) {
    if (is_eltwise(follower->op)) {
      const Eltwise eltwise = eltwise_of(NodeBuilder(*follower, opset_, values_, everything_known_, nullptr));
      operations.append_eltwise(eltwise.algorithm, eltwise.alpha, eltwise.beta);
    } else {
      const std::string& name = follower->inputs.at(follower->inputs.at(0) == previous ? 1 : 0);
      const Value& operand = value_named(name, "operand");
      if (operand.dtype != dtype) throw sdk::Unsupported("an operand of another dtype cannot be fused");
      if (follower->op == "Add" && node_.op == "Conv" && operand.shape == shape && sum_operand_.empty()) {
        sum_operand_ = name;
        operations.append_sum();
      } else {
        const Desc seen = post_operand_layout(operand, shape, node_.op == "Conv" ? 1 : shape.size() - 1);
        post_operands_[operations.len()] = {&operand, seen};
        operations.append_binary(binary_algorithm(follower->op).value(), seen);
      }
    }
    previous = follower->outputs.at(0);
  }
  attributes.set_post_ops(operations);
  return attributes;
}

void NodeBuilder::add_post_operands(const dnnl::primitive_desc& description,
                                    std::unordered_map<int, dnnl::memory>& arguments) {
  for (const auto& [index, operand] : post_operands_) {
    const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1;
    arguments[argument] = in_layout(*operand.first, dense(operand.first->dtype, operand.second.get_dims()),
                                    description.query_md(dnnl::query::exec_arg_md, argument));
  }
}

Value& NodeBuilder::output(std::size_t index, const std::string& dtype, const Shape& shape) {
  return output(index, dtype, shape, dense(dtype, shape));
}

Value& NodeBuilder::output(std::size_t index, const std::string& dtype, const Shape& shape, const Desc& layout) {
  if (!wants_output(index)) throw std::invalid_argument("output " + std::to_string(index) + " has no name");
  const auto& name = fusion_ && index == 0 ? fusion_->last().outputs.at(0) : node_.outputs[index];
  sdk::element_count(shape);
  Value value;
  value.dtype = dtype;
  value.shape = shape;
  value.buffer = sdk::Buffer(layout.get_size());
  value.memory = dnnl::memory(layout, engine(), value.buffer.data());
  kernel_.written.emplace_back(name, value.buffer);
  if (index == 0 && !sum_operand_.empty()) {
    add_reorder(value_named(sum_operand_, "operand").memory, value.memory);
  }
  Value& stored = values_[name];
  stored = std::move(value);
  return stored;
}

bool NodeBuilder::is_empty(std::size_t index, const std::string& dtype, const Shape& shape) {
  if (sdk::element_count(shape) > 0) return false;
  output(index, dtype, shape);
  return true;
}

dnnl::memory NodeBuilder::expanded(const dnnl::memory& dense_source, const Dims& seen, const Dims& dims) {
  const auto type = dense_source.get_desc().get_data_type();
  const dnnl::memory to = scratch(dense(type, dims));
  Dims strides = dense_strides(seen);
  for (std::size_t i = 0; i < seen.size(); ++i) strides[i] = seen[i] == 1 ? 0 : strides[i];
  const std::size_t size = dnnl::memory::data_type_size(type);
  add_host([from = dense_source, to, strides, shape = Shape(dims.begin(), dims.end()), size] {
    copy_strided(static_cast<const std::byte*>(from.get_data_handle()), 0, strides, shape, size,
                 static_cast<std::byte*>(to.get_data_handle()));
  });
  return to;
}

void NodeBuilder::add_sum(const dnnl::memory& full, const dnnl::memory& target, float factor) {
  if (full.get_desc().get_dims() == target.get_desc().get_dims()) return add_scaled(full, target, factor);
  const Dims dims = target.get_desc().get_dims();
  // A sum in float becomes nothing but float.
  const auto type = full.get_desc().get_data_type();
  const bool direct = factor == 1 && type == target.get_desc().get_data_type();
  const dnnl::memory sum = direct ? target : scratch(dense(dnnl::memory::data_type::f32, dims));
  const dnnl::reduction::primitive_desc description(engine(), dnnl::algorithm::reduction_sum, full.get_desc(),
                                                    sum.get_desc(), 0, 0);
  add(dnnl::reduction(description), {{DNNL_ARG_SRC, full}, {DNNL_ARG_DST, sum}});
  if (!direct) add_scaled(sum, target, factor);
}

void NodeBuilder::add_scaled(const dnnl::memory& from, const dnnl::memory& to, float factor) {
  if (factor == 1) return add_reorder(from, to);
  dnnl::primitive_attr attributes;
  attributes.set_scales_mask(DNNL_ARG_SRC, 0);
  const dnnl::reorder::primitive_desc description(engine(), from.get_desc(), engine(), to.get_desc(), attributes);
  add(dnnl::reorder(description),
      {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, scale_memory(factor)}});
}

dnnl::memory NodeBuilder::scale_memory(float scale) {
  dnnl::memory memory = scratch(dense("float", {1}));
  std::memcpy(memory.get_data_handle(), &scale, sizeof scale);
  return memory;
}

dnnl::memory NodeBuilder::scratch(const Desc& layout) {
  const sdk::Buffer buffer(layout.get_size());
  kernel_.written.emplace_back("a reordered copy", buffer);
  return dnnl::memory(layout, engine(), buffer.data());
}

void NodeBuilder::add(dnnl::primitive primitive, std::unordered_map<int, dnnl::memory> arguments) {
  kernel_.steps.push_back({std::move(primitive), std::move(arguments), nullptr});
}

void NodeBuilder::add_host(std::function<void()> step) { kernel_.steps.push_back({{}, {}, std::move(step)}); }

void NodeBuilder::add_reorder(const dnnl::memory& from, const dnnl::memory& to) {
  const dnnl::reorder::primitive_desc description(engine(), from.get_desc(), engine(), to.get_desc());
  add(dnnl::reorder(description), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

}  // namespace opdiff::onednn
