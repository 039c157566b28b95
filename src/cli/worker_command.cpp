// opdiff worker reference: the meta-operators behind the wire protocol, as any other backend.
#include "cli/commands.h"
#include "graph/onnx_reader.h"
#include "graph/validate.h"
#include "numerics/parallel.h"
#include "opdiff_worker.h"
#include "ops/op.h"
#include "reference/evaluate.h"

namespace opdiff {
namespace {

Tensor from_wire(const sdk::Tensor& tensor) {
  return Tensor::from_bytes(*parse_dtype(tensor.dtype), tensor.shape, {tensor.data, tensor.bytes()});
}

sdk::Tensor to_wire(const Tensor& tensor) {
  sdk::Tensor result = sdk::Tensor::allocate(std::string(dtype_name(tensor.dtype())), tensor.shape());
  if (tensor.byte_size() > 0) std::memcpy(result.mutable_as<std::byte>(), tensor.bytes().data(), tensor.byte_size());
  return result;
}

template <class T>
T or_throw(Expected<T> value) {
  if (!value) throw sdk::Unsupported(value.error().message);
  return *std::move(value);
}

class ReferenceModel : public sdk::Model {
 public:
  ReferenceModel(Graph graph, bool isolated) : graph_(std::move(graph)), isolated_(isolated) {}

  sdk::RunResult run(const sdk::TensorMap& inputs) override {
    TensorMap feeds;
    for (const auto& [name, tensor] : inputs) feeds[name] = from_wire(tensor);
    sdk::RunResult result;
    if (!isolated_) {
      for (const auto& [name, tensor] : or_throw(evaluate_graph(graph_, feeds))) result.outputs[name] = to_wire(tensor);
      return result;
    }
    for (const Node& node : graph_.nodes) {
      std::vector<const Tensor*> values;
      for (const std::string& name : node.inputs) {
        const auto feed = feeds.find(name);
        const auto weight = graph_.initialisers.find(name);
        values.push_back(feed != feeds.end()                   ? &feed->second
                         : weight != graph_.initialisers.end() ? &weight->second
                                                               : nullptr);
      }
      const auto outputs = evaluate_node(node, graph_.opset(node.domain), values);
      if (!outputs) {
        result.failures[node.id] = {"unsupported", outputs.error().message};
        continue;
      }
      // The model's nodes share no edge; nodes that a planted fault adds do.
      for (std::size_t k = 0; k < node.outputs.size() && k < outputs->size(); ++k)
        if (!node.outputs[k].empty()) feeds[node.outputs[k]] = (*outputs)[k];
    }
    for (const ValueInfo& output : graph_.outputs) {
      const auto found = feeds.find(output.name);
      if (found != feeds.end()) result.outputs[output.name] = to_wire(found->second);
    }
    return result;
  }

 private:
  Graph graph_;
  bool isolated_;
};

class ReferenceBackend : public sdk::Backend {
 public:
  sdk::Hello hello(const std::map<std::string, std::string>& options) override {
    for (const auto& [key, value] : options) {
      if (key != "threads") throw sdk::Unsupported(fmt::format("reference has no option '{}'; it has threads=N", key));
      set_threads(std::atoi(value.c_str()));
    }
    sdk::Hello hello;
    hello.name = "reference";
    hello.version = OPDIFF_VERSION;
    hello.build = "opdiff " OPDIFF_VERSION;
    hello.isa = "any";
    hello.gradient = true;
    hello.importing = true;  // reads the ONNX bytes, with the engine's own reader
    for (const MetaOperator* op : all_operators()) hello.operators.emplace_back(op->name);
    for (int k = 0; k < kDTypeCount; ++k) hello.dtypes.emplace_back(dtype_name(static_cast<DType>(k)));
    return hello;
  }

  std::unique_ptr<sdk::Model> prepare(sdk::Graph graph) override {
    Graph parsed =
        or_throw(parse_onnx({reinterpret_cast<const char*>(graph.model.data()), graph.model.size()}, {}, graph.name));
    const auto valid = validate(parsed);
    if (!valid) throw sdk::Unsupported(valid.error().message);
    for (const Node& node : parsed.nodes)
      if (!graph.isolated && !has_reference(node, parsed.opset(node.domain)))
        throw sdk::Unsupported(fmt::format("node '{}': no reference for operator {}", node.id, node.op));
    return std::make_unique<ReferenceModel>(std::move(parsed), graph.isolated);
  }
};

int serve_reference(const std::string& name) {
  if (name != "reference") return cannot_run({fmt::format("no built-in worker '{}'; there is: reference", name)});
  ReferenceBackend backend;
  return sdk::serve(backend);
}

}  // namespace

void add_worker_command(CLI::App& app, int* status) {
  auto* command = app.add_subcommand("worker", "be a built-in backend's worker process (started by opdiff itself)");
  auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "reference")->required();
  command->footer("Speaks docs/formats/wire.md on file descriptor 3.");
  command->callback([name, status] { *status = serve_reference(*name); });
}

}  // namespace opdiff
