#include "graph/onnx_writer.h"

#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <onnx/onnx_pb.h>

#include "base/file.h"
#include "graph/onnx_tensor.h"

namespace opdiff {
namespace {

void write_value_info(const ValueInfo& info, bool with_type, onnx::ValueInfoProto* proto) {
  proto->set_name(info.name);
  if (!with_type) return;
  auto* type = proto->mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx_code(info.dtype));
  if (!info.shape) return;
  auto* shape = type->mutable_shape();
  for (const Dimension& dimension : *info.shape) {
    auto* dim = shape->add_dim();
    if (dimension.value)
      dim->set_dim_value(*dimension.value);
    else if (!dimension.symbol.empty())
      dim->set_dim_param(dimension.symbol);
  }
}

void write_graph(const Graph& graph, bool is_main, OutputTypes types, onnx::GraphProto* proto);

struct AttributeWriter {
  onnx::AttributeProto* proto;
  using P = onnx::AttributeProto;

  void operator()(std::int64_t value) const {
    proto->set_type(P::INT);
    proto->set_i(value);
  }
  void operator()(float value) const {
    proto->set_type(P::FLOAT);
    proto->set_f(value);
  }
  void operator()(const std::string& value) const {
    proto->set_type(P::STRING);
    proto->set_s(value);
  }
  void operator()(const Tensor& value) const {
    proto->set_type(P::TENSOR);
    write_tensor(value, "", proto->mutable_t());
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    proto->set_type(P::INTS);
    proto->mutable_ints()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<float>& values) const {
    proto->set_type(P::FLOATS);
    proto->mutable_floats()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<std::string>& values) const {
    proto->set_type(P::STRINGS);
    for (const auto& value : values) proto->add_strings(value);
  }
  void operator()(const std::shared_ptr<Graph>& graph) const {
    OPDIFF_CHECK(graph != nullptr);
    proto->set_type(P::GRAPH);
    write_graph(*graph, false, OutputTypes::declared, proto->mutable_g());
  }
};

void write_node(const Node& node, onnx::NodeProto* proto) {
  proto->set_name(node.id);
  proto->set_op_type(node.op);
  proto->set_domain(node.domain);
  for (const auto& name : node.inputs) proto->add_input(name);
  for (const auto& name : node.outputs) proto->add_output(name);
  for (const auto& [name, value] : node.attributes) {
    auto* attribute = proto->add_attribute();
    attribute->set_name(name);
    std::visit(AttributeWriter{attribute}, value);
  }
}

void write_graph(const Graph& graph, bool is_main, OutputTypes types, onnx::GraphProto* proto) {
  // The name is mandatory in ONNX.
  proto->set_name(graph.name.empty() ? "graph" : graph.name);
  for (const auto& [name, tensor] : graph.initialisers) write_tensor(tensor, name, proto->add_initializer());
  // Types in subgraphs are optional; the reader takes f32 of unknown rank where none was declared.
  const auto is_known = [](const ValueInfo& info) { return info.shape || info.dtype != DType::f32; };
  const auto with_type = [&](const ValueInfo& info) { return is_main || is_known(info); };
  for (const auto& info : graph.inputs) write_value_info(info, with_type(info), proto->add_input());
  if (graph.ir_version < 4) {  // initialisers must be inputs too
    for (const auto& [name, tensor] : graph.initialisers) {
      std::vector<Dimension> shape;
      for (const std::int64_t size : tensor.shape()) shape.push_back({size, ""});
      write_value_info({name, tensor.dtype(), std::move(shape)}, true, proto->add_input());
    }
  }
  for (const auto& info : graph.outputs) {
    const bool typed = types == OutputTypes::known ? is_known(info) : with_type(info);
    write_value_info(info, typed, proto->add_output());
  }
  for (const auto& info : graph.values) write_value_info(info, true, proto->add_value_info());
  for (const auto& node : graph.nodes) write_node(node, proto->add_node());
}

}  // namespace

std::string write_onnx(const Graph& graph, OutputTypes types) {
  onnx::ModelProto model;
  model.set_ir_version(graph.ir_version);
  model.set_producer_name("opdiff");
  for (const auto& [domain, version] : graph.opsets) {
    auto* opset = model.add_opset_import();
    opset->set_domain(domain);
    opset->set_version(version);
  }
  write_graph(graph, true, types, model.mutable_graph());
  OPDIFF_CHECK(model.ByteSizeLong() <= kMaxProtobufBytes);
  std::string bytes;
  OPDIFF_CHECK(model.SerializeToString(&bytes));
  return bytes;
}

Expected<void> write_onnx_file(const Graph& graph, const std::filesystem::path& path) {
  return write_file_atomically(path, write_onnx(graph));
}

}  // namespace opdiff
