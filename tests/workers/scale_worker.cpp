// The smallest useful worker of the C++ SDK (docs/new-backend.md shows it), with an option that makes it misbehave so
// that sdk_cpp_test.cpp can see what the engine makes of that.
#include <cstdint>
#include <new>

#include "opdiff_worker.h"

namespace sdk = opdiff::sdk;

namespace {

struct Scale : sdk::Model {
  sdk::Graph graph;
  std::string fault;

  sdk::RunResult run(const sdk::TensorMap& inputs) override {
    sdk::RunResult result;
    const sdk::Node& node = graph.nodes.at(0);
    const sdk::Tensor& x = inputs.at(node.inputs.at(0));
    const sdk::Tensor& factor = graph.initialisers.at(node.inputs.at(1));
    sdk::Tensor y = sdk::Tensor::allocate("float", x.shape);
    const std::size_t count = y.elements() - (fault == "short" ? 1 : 0) + (fault == "overrun" ? 1 : 0);
    for (std::size_t i = 0; i < count; ++i)
      y.mutable_as<float>()[i] = x.as<float>()[i % x.elements()] * *factor.as<float>();
    if (fault == "memory") throw std::bad_alloc();
    if (fault == "huge") sdk::Tensor::allocate("float", {std::int64_t{1} << 60});
    if (fault == "fail") result.failures[node.id] = {"unsupported", "not today"};
    if (fault != "forget" && fault != "fail") result.outputs[node.outputs.at(0)] = y;
    return result;
  }

  std::optional<std::vector<sdk::Kernel>> kernels() override {
    if (fault == "silent") return std::nullopt;
    return std::vector<sdk::Kernel>{{"scale", {graph.nodes.at(0).id}}};
  }
};

struct Backend : sdk::Backend {
  std::string fault;

  sdk::Hello hello(const std::map<std::string, std::string>& options) override {
    for (const auto& [name, value] : options) {
      if (name != "fault") throw std::invalid_argument("option " + name + " is not one of fault");
      fault = value;
    }
    sdk::Hello hello;
    hello.name = "scale";
    hello.version = "1.0";
    hello.operators = {"Mul"};
    hello.dtypes = {"float"};
    return hello;
  }

  std::unique_ptr<sdk::Model> prepare(sdk::Graph graph) override {
    for (const auto& node : graph.nodes) {
      if (node.op != "Mul") throw sdk::Unsupported("node '" + node.id + "': " + node.op + " has no binding");
    }
    auto model = std::make_unique<Scale>();
    model->graph = std::move(graph);
    model->fault = fault;
    return model;
  }
};

}  // namespace

int main() {
  Backend backend;
  return sdk::serve(backend);
}
