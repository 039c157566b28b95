#include "workers/faulty.h"

#include <signal.h>

#include "workers/fault.h"
#include "workers/worker_backend.h"

namespace opdiff {
namespace {

Tensor with_wrong_dtype(const Tensor& tensor) {
  return Tensor::from_doubles(tensor.dtype() == DType::f64 ? DType::f32 : DType::f64, tensor.shape(),
                              tensor.to_doubles());
}

class FaultyBackend : public Backend {
 public:
  FaultyBackend(const BackendSpec& spec, Fault fault, std::unique_ptr<Backend> base)
      : fault_(std::move(fault)), base_(std::move(base)), info_(base_->info()) {
    info_.spec = to_string(spec);
    info_.name = "faulty";
    info_.build =
        fmt::format("{} {} with a planted fault; {}", base_->info().name, base_->info().version, base_->info().build);
  }

  const BackendInfo& info() const override { return info_; }

  Outcome prepare(const Graph& graph, const PrepareOptions& options, int* handle) override {
    const auto found = matches(graph, fault_);
    Graph edited = graph;
    std::vector<Fed> fed;
    if (fault_.kind->edit != nullptr) {
      std::vector<std::string> ids;
      for (const auto position : found) ids.push_back(graph.nodes[position].id);
      GraphEdit edit(edited);
      for (const auto& id : ids) {
        const auto done = fault_.kind->edit(edit, edited, edit.position_of(id), fault_);
        if (!done) {
          return Outcome::failure(OutcomeKind::error, fmt::format("faulty: fault '{}' does not fit node '{}': {}",
                                                                  fault_.kind->name, id, done.error().message));
        }
        if (fault_.kind->place == FaultPlace::fed) {
          fed.push_back({id, edited.inputs.back().name, FedFault(graph, found[fed.size()])});
        }
      }
    }
    // A fault in a node is only seen where that node is run, not where autodiff replaces it.
    PrepareOptions as_written = options;
    if (fault_.kind->edit != nullptr && !found.empty()) as_written.training = nullptr;
    Outcome outcome = base_->prepare(edited, as_written, handle);
    hide_added_nodes(outcome);
    if (outcome.ok()) {
      auto& prepared = prepared_[*handle];
      prepared.present = !found.empty();
      prepared.touched = reached(graph, found);
      prepared.fed = std::move(fed);
    }
    return outcome;
  }

  Outcome run(int handle, const TensorMap& inputs, int repeat) override {
    auto& prepared = prepared_[handle];
    if (prepared.present && fault_.kind->place == FaultPlace::process) {
      const auto* worker = dynamic_cast<const WorkerBackend*>(base_.get());
      const bool hang = std::string_view(fault_.kind->name) == "hang";
      if (worker && worker->pid() > 0) ::kill(worker->pid(), hang ? SIGSTOP : SIGSEGV);
    }
    TensorMap all = inputs;
    for (const Fed& fed : prepared.fed) {
      auto tensor = fed.fault.tensor(inputs, fault_);
      if (!tensor) {
        return Outcome::failure(OutcomeKind::error, fmt::format("faulty: fault '{}' does not fit node '{}': {}",
                                                                fault_.kind->name, fed.node, tensor.error().message));
      }
      all[fed.name] = *std::move(tensor);
    }
    Outcome outcome = base_->run(handle, all, repeat);
    hide_added_nodes(outcome);
    if (outcome.ok() && fault_.kind->place == FaultPlace::result) spoil(prepared, outcome.outputs);
    return outcome;
  }

  void release(int handle) override {
    prepared_.erase(handle);
    base_->release(handle);
  }

 private:
  struct Fed {
    std::string node;
    std::string name;  // of the tensor
    FedFault fault;
  };
  struct Prepared {
    bool present = false;
    std::set<std::string> touched;
    std::vector<Fed> fed;
    TensorMap previous;
  };

  void spoil(Prepared& prepared, TensorMap& outputs) {
    const std::string_view name = fault_.kind->name;
    const TensorMap right = outputs;
    for (auto& [output, tensor] : outputs) {
      if (!prepared.touched.contains(output)) continue;
      if (name == "stale") {
        const auto before = prepared.previous.find(output);
        tensor = before == prepared.previous.end() ? Tensor::zeros(tensor.dtype(), tensor.shape()) : before->second;
      } else if (name == "wrong-shape") {
        Shape shape = tensor.shape();
        shape.push_back(1);
        tensor = tensor.reshaped(shape);
      } else {
        tensor = with_wrong_dtype(tensor);
      }
    }
    prepared.previous = right;
  }

  // Times, failures and kernels of nodes that the edit added are the faulty node's.
  static void hide_added_nodes(Outcome& outcome) {
    const auto owner = [](const std::string& id) { return id.substr(0, id.rfind(kFaultMark)); };
    for (auto it = outcome.node_ms.begin(); it != outcome.node_ms.end();) {
      if (const std::string own = owner(it->first); own != it->first) {
        outcome.node_ms[own] += it->second;
        it = outcome.node_ms.erase(it);
      } else {
        ++it;
      }
    }
    auto failures = std::move(outcome.node_failures);
    outcome.node_failures.clear();
    for (auto& [id, failure] : failures) outcome.node_failures.emplace(owner(id), std::move(failure));
    if (!outcome.kernels) return;
    for (Kernel& kernel : *outcome.kernels) {
      for (std::string& id : kernel.nodes) id = owner(id);
      std::set<std::string> seen;
      std::erase_if(kernel.nodes, [&](const std::string& id) { return !seen.insert(id).second; });
    }
  }

  Fault fault_;
  std::unique_ptr<Backend> base_;
  BackendInfo info_;
  std::map<int, Prepared> prepared_;
};

}  // namespace

std::string fault_table() {
  std::string table;
  for (const auto& kind : fault_kinds()) table += fmt::format("  fault={:<14} {}\n", kind.name, kind.what);
  table +=
      "  where: op=OPERATOR (every node of it; op=gradient.OPERATOR: every gradient of it), node=ID, both, or "
      "pair=ID+ID: only in a graph that holds both nodes "
      "and a\n"
      "  path from the first to the second (the second is changed). A base with options of its own goes in "
      "parentheses:\n"
      "    faulty:base=(onnxruntime@1.23.2:opt=basic,disable=A+B),op=Conv,fault=scale,size=12\n";
  return table;
}

Expected<std::unique_ptr<Backend>> plant_fault(const BackendSpec& spec, std::unique_ptr<Backend> base) {
  OPDIFF_TRY(Fault fault, parse_fault(spec));
  if (fault.kind->place == FaultPlace::process && !dynamic_cast<WorkerBackend*>(base.get())) {
    return make_error("'{}': fault={} needs a base that is no faulty one", to_string(spec), fault.kind->name);
  }
  return std::make_unique<FaultyBackend>(spec, std::move(fault), std::move(base));
}

}  // namespace opdiff
