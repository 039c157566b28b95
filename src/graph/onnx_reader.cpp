#include "graph/onnx_reader.h"

#include <google/protobuf/io/coded_stream.h>

#include <set>

#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <onnx/onnx_pb.h>

#include "base/file.h"
#include "base/utf8.h"
#include "graph/onnx_tensor.h"

namespace opdiff {
namespace {

// "ai.onnx" is another way to write the default domain.
std::string canonical_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

class Reader {
 public:
  Reader(const std::filesystem::path& folder, std::uint64_t file_bytes) : tensors_(folder, file_bytes) {}
  // Frees the model's parts as it goes.
  Expected<Graph> read_model(onnx::ModelProto& model);

 private:
  Expected<void> read_versions(const onnx::ModelProto& model);
  Expected<Graph> read_graph(onnx::GraphProto& proto, bool is_main);
  Expected<void> read_initialisers(onnx::GraphProto& proto, Graph& graph);
  Expected<void> read_inputs(const onnx::GraphProto& proto, bool is_main, Graph& graph);
  Expected<ValueInfo> read_value_info(const onnx::ValueInfoProto& proto, bool needs_type);
  Expected<Node> read_node(onnx::NodeProto& proto);
  Expected<Attribute> read_attribute(onnx::AttributeProto& proto);

  TensorReader tensors_;
  int ir_version_ = 0;
  std::map<std::string, int> opsets_;
  std::set<std::pair<std::string, std::string>> functions_;  // domain, name
};

void escape(std::string* name) {
  if (const std::string clean = escape_controls(*name); clean != *name) *name = clean;
}
void escape(google::protobuf::RepeatedPtrField<std::string>* names) {
  for (std::string& name : *names) escape(&name);
}

// A model's names end up on terminals, in reports and in archives: what could harm there is written out, everywhere
// alike, before anybody reads it. Protobuf itself refuses nesting that is too deep.
void escape_names(onnx::GraphProto* graph) {
  escape(graph->mutable_name());
  for (auto& tensor : *graph->mutable_initializer()) escape(tensor.mutable_name());
  for (auto* infos : {graph->mutable_input(), graph->mutable_output(), graph->mutable_value_info()}) {
    for (auto& info : *infos) {
      escape(info.mutable_name());
      if (!info.type().tensor_type().has_shape()) continue;
      for (auto& dimension : *info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
        if (dimension.has_dim_param()) escape(dimension.mutable_dim_param());
    }
  }
  for (auto& node : *graph->mutable_node()) {
    for (std::string* name : {node.mutable_name(), node.mutable_op_type(), node.mutable_domain()}) escape(name);
    escape(node.mutable_input());
    escape(node.mutable_output());
    for (auto& attribute : *node.mutable_attribute()) {
      escape(attribute.mutable_name());
      if (attribute.has_g()) escape_names(attribute.mutable_g());
    }
  }
}

void escape_names(onnx::ModelProto* model) {
  for (auto& import : *model->mutable_opset_import()) escape(import.mutable_domain());
  for (auto& function : *model->mutable_functions()) {
    escape(function.mutable_domain());
    escape(function.mutable_name());
  }
  if (model->has_graph()) escape_names(model->mutable_graph());
}

Expected<void> check_utf8(std::string_view what, const std::string& name) {
  if (is_valid_utf8(name)) return {};
  return make_error("the {} '{}' is not UTF-8", what, replace_invalid_utf8(name));
}

Expected<void> Reader::read_versions(const onnx::ModelProto& model) {
  if (!model.has_ir_version() || !model.has_graph())
    return make_error("is not an ONNX model: it has no {}", model.has_graph() ? "IR version" : "graph");
  if (model.ir_version() < kMinIrVersion || model.ir_version() > kMaxIrVersion)
    return make_error("IR version {} is not supported; {} to {} are", model.ir_version(), kMinIrVersion, kMaxIrVersion);
  ir_version_ = static_cast<int>(model.ir_version());
  for (const auto& import : model.opset_import()) {
    OPDIFF_RETURN_IF_ERROR(check_utf8("operator domain", import.domain()));
    const std::string domain = canonical_domain(import.domain());
    if (domain.empty() && (import.version() < kMinOpset || import.version() > kMaxOpset))
      return make_error("opset {} is not supported; {} to {} are", import.version(), kMinOpset, kMaxOpset);
    if (import.version() < 0 || import.version() > 1'000'000)
      return make_error("domain '{}' has the opset {}, which is no version", domain, import.version());
    const int version = static_cast<int>(import.version());
    const auto [entry, is_new] = opsets_.emplace(domain, version);
    if (!is_new && entry->second != version)
      return make_error("domain '{}' is imported with opset {} and with {}", domain, entry->second, version);
  }
  return {};
}

Expected<Graph> Reader::read_model(onnx::ModelProto& model) {
  OPDIFF_RETURN_IF_ERROR(read_versions(model));
  for (const auto& function : model.functions())
    functions_.emplace(canonical_domain(function.domain()), function.name());
  OPDIFF_TRY(Graph graph, read_graph(*model.mutable_graph(), true));
  if (graph.nodes.empty() && graph.outputs.empty()) return make_error("the graph has neither nodes nor outputs");
  return graph;
}

Expected<ValueInfo> Reader::read_value_info(const onnx::ValueInfoProto& proto, bool needs_type) {
  OPDIFF_RETURN_IF_ERROR(check_utf8("tensor name", proto.name()));
  if (proto.name().empty()) return make_error("a tensor without a name is declared");
  ValueInfo info;
  info.name = proto.name();
  if (!proto.has_type()) {
    if (needs_type) return make_error("'{}' is declared without a type", proto.name());
    return info;
  }
  if (!proto.type().has_tensor_type())
    return make_error(
        "'{}' is no dense tensor (but a sequence, map, optional or sparse tensor), which is not supported",
        proto.name());
  const auto& type = proto.type().tensor_type();
  const auto dtype = dtype_from_onnx_code(type.elem_type());
  if (!dtype) {
    const bool is_string = type.elem_type() == onnx::TensorProto::STRING;
    return make_error("'{}' has {}, which is not supported", proto.name(),
                      is_string ? std::string("dtype string") : fmt::format("the dtype {}", type.elem_type()));
  }
  info.dtype = *dtype;
  if (!type.has_shape()) return info;
  info.shape.emplace();
  for (const auto& dimension : type.shape().dim()) {
    OPDIFF_RETURN_IF_ERROR(check_utf8("dimension", dimension.dim_param()));
    // Exporters write -1 for "unknown".
    if (dimension.has_dim_value() && dimension.dim_value() >= 0)
      info.shape->push_back({dimension.dim_value(), ""});
    else
      info.shape->push_back({std::nullopt, dimension.dim_param()});
  }
  Shape fixed;
  for (const Dimension& dimension : *info.shape) fixed.push_back(dimension.value.value_or(1));
  if (auto count = checked_element_count(fixed); !count)
    return make_error("'{}': {}", proto.name(), count.error().message);
  return info;
}

Expected<void> Reader::read_initialisers(onnx::GraphProto& proto, Graph& graph) {
  if (proto.sparse_initializer_size() > 0)
    return make_error("the sparse initialiser '{}' is not supported", proto.sparse_initializer(0).values().name());
  for (auto& tensor : *proto.mutable_initializer()) {
    OPDIFF_RETURN_IF_ERROR(check_utf8("initialiser", tensor.name()));
    if (tensor.name().empty()) return make_error("an initialiser has no name");
    auto value = tensors_.read(tensor);
    if (!value) return make_error("initialiser '{}' {}", tensor.name(), value.error().message);
    if (!graph.initialisers.emplace(tensor.name(), *std::move(value)).second)
      return make_error("initialiser '{}' is given twice", tensor.name());
    tensor.Clear();
  }
  return {};
}

Expected<void> Reader::read_inputs(const onnx::GraphProto& proto, bool is_main, Graph& graph) {
  for (const auto& input : proto.input()) {
    const auto initialiser = graph.initialisers.find(input.name());
    if (initialiser == graph.initialisers.end()) {
      auto info = read_value_info(input, is_main);
      if (!info) return with_context("graph input", info.error());
      graph.inputs.push_back(*std::move(info));
      continue;
    }
    // IR version 3 lists initialisers as inputs too; later versions may, and mean a default. Both are
    // constants to us.
    const int declared = input.type().tensor_type().elem_type();
    if (declared != 0 && declared != onnx_code(initialiser->second.dtype()))
      return make_error("initialiser '{}' is {}, but declared with dtype {} as an input", input.name(),
                        dtype_name(initialiser->second.dtype()), declared);
  }
  return {};
}

// The node's name if unique and non-empty, else its first output's name; a number is appended where that is
// taken.
void assign_ids(Graph& graph) {
  std::map<std::string, int> uses;
  for (const Node& node : graph.nodes) ++uses[node.id];
  std::set<std::string> taken;
  for (const Node& node : graph.nodes)
    if (!node.id.empty() && uses[node.id] == 1) taken.insert(node.id);
  for (Node& node : graph.nodes) {
    if (!node.id.empty() && uses[node.id] == 1) continue;
    std::string base = node.op;
    for (auto output = node.outputs.rbegin(); output != node.outputs.rend(); ++output)
      if (!output->empty()) base = *output;
    std::string id = base;
    for (int k = 2; !taken.insert(id).second; ++k) id = fmt::format("{}#{}", base, k);
    node.id = id;
  }
}

Expected<Graph> Reader::read_graph(onnx::GraphProto& proto, bool is_main) {
  Graph graph;
  graph.name = proto.name();
  graph.ir_version = ir_version_;
  graph.opsets = opsets_;
  OPDIFF_RETURN_IF_ERROR(check_utf8("graph name", proto.name()));
  OPDIFF_RETURN_IF_ERROR(read_initialisers(proto, graph));
  OPDIFF_RETURN_IF_ERROR(read_inputs(proto, is_main, graph));
  for (const auto& output : proto.output()) {
    auto info = read_value_info(output, is_main);
    if (!info) return with_context("graph output", info.error());
    graph.outputs.push_back(*std::move(info));
  }
  // Declarations that we cannot express (sequences, strings) are hints only.
  for (const auto& value : proto.value_info())
    if (auto info = read_value_info(value, true)) graph.values.push_back(*std::move(info));
  for (auto& node_proto : *proto.mutable_node()) {
    auto node = read_node(node_proto);
    if (!node) {
      const std::string& name = !node_proto.name().empty()     ? node_proto.name()
                                : node_proto.output_size() > 0 ? node_proto.output(0)
                                                               : node_proto.op_type();
      return with_context(fmt::format("node '{}'", replace_invalid_utf8(name)), node.error());
    }
    graph.nodes.push_back(*std::move(node));
  }
  assign_ids(graph);
  return graph;
}

Expected<Node> Reader::read_node(onnx::NodeProto& proto) {
  Node node;
  node.id = proto.name();
  node.op = proto.op_type();
  node.domain = canonical_domain(proto.domain());
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  OPDIFF_RETURN_IF_ERROR(check_utf8("name", node.id));
  OPDIFF_RETURN_IF_ERROR(check_utf8("operator", node.op));
  OPDIFF_RETURN_IF_ERROR(check_utf8("domain", node.domain));
  for (const auto& name : node.inputs) OPDIFF_RETURN_IF_ERROR(check_utf8("input", name));
  for (const auto& name : node.outputs) OPDIFF_RETURN_IF_ERROR(check_utf8("output", name));
  if (node.op.empty()) return make_error("has no operator");
  if (functions_.contains({node.domain, node.op}))
    return make_error(
        "calls the model-local function '{}{}{}', which is not supported; inline the model's functions first",
        node.domain, node.domain.empty() ? "" : ".", node.op);
  if (!opsets_.contains(node.domain))
    return make_error("is of domain '{}', whose opset the model does not import",
                      node.domain.empty() ? "ai.onnx" : node.domain);
  for (auto& attribute : *proto.mutable_attribute()) {
    OPDIFF_RETURN_IF_ERROR(check_utf8("attribute", attribute.name()));
    auto value = read_attribute(attribute);
    if (!value) return make_error("attribute '{}' {}", attribute.name(), value.error().message);
    if (!node.attributes.emplace(attribute.name(), *std::move(value)).second)
      return make_error("attribute '{}' is given twice", attribute.name());
  }
  return node;
}

// The kind of an attribute whose producer left `type` out (allowed before IR version 2, seen later).
onnx::AttributeProto::AttributeType kind_of(const onnx::AttributeProto& proto) {
  using P = onnx::AttributeProto;
  if (proto.type() != P::UNDEFINED) return proto.type();
  if (proto.has_f()) return P::FLOAT;
  if (proto.has_i()) return P::INT;
  if (proto.has_s()) return P::STRING;
  if (proto.has_t()) return P::TENSOR;
  if (proto.has_g()) return P::GRAPH;
  if (proto.floats_size() > 0) return P::FLOATS;
  if (proto.ints_size() > 0) return P::INTS;
  if (proto.strings_size() > 0) return P::STRINGS;
  return P::UNDEFINED;
}

Expected<Attribute> Reader::read_attribute(onnx::AttributeProto& proto) {
  using P = onnx::AttributeProto;
  if (proto.name().empty()) return make_error("has no name");
  if (!proto.ref_attr_name().empty()) return make_error("refers to '{}' outside a function", proto.ref_attr_name());
  switch (kind_of(proto)) {
    case P::FLOAT: return Attribute(proto.f());
    case P::INT: return Attribute(std::int64_t{proto.i()});
    case P::STRING: return Attribute(proto.s());
    case P::FLOATS: return Attribute(std::vector<float>(proto.floats().begin(), proto.floats().end()));
    case P::INTS: return Attribute(std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end()));
    case P::STRINGS: return Attribute(std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
    case P::TENSOR: {
      OPDIFF_TRY(Tensor tensor, tensors_.read(proto.t()));
      return Attribute(std::move(tensor));
    }
    case P::GRAPH: {
      auto graph = read_graph(*proto.mutable_g(), false);
      if (!graph) return make_error("(a subgraph): {}", graph.error().message);
      return Attribute(std::make_shared<Graph>(*std::move(graph)));
    }
    default:
      return make_error("is of a kind that is not supported ({})",
                        onnx::AttributeProto_AttributeType_Name(proto.type()));
  }
}

}  // namespace

Expected<Graph> parse_onnx(std::string_view bytes, const std::filesystem::path& model_folder, std::string_view name) {
  if (bytes.empty()) return make_error("{}: the file is empty", name);
  if (bytes.size() > kMaxModelBytes)
    return make_error("{}: has {} bytes, more than the {} that are supported", name, bytes.size(), kMaxModelBytes);
  // Protobuf itself refuses messages nested more than 100 deep, which bounds our recursion over subgraphs.
  onnx::ModelProto model;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return make_error("{}: is not an ONNX model, or is truncated or damaged (the protobuf cannot be read)", name);
  escape_names(&model);
  auto graph = Reader(model_folder, bytes.size()).read_model(model);
  if (!graph) return with_context(name, graph.error());
  return graph;
}

Expected<Graph> read_onnx(const std::filesystem::path& path) {
  OPDIFF_TRY(const std::string bytes, read_file(path, kMaxModelBytes));
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  return parse_onnx(bytes, folder, path.string());
}

}  // namespace opdiff
