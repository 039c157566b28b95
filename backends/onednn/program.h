// A graph as oneDNN runs it: one Kernel a node (node_builder.h), made at prepare wherever shapes and
// constants allow, weights reordered once, activations in whatever layout the primitives prefer.
#pragma once

#include <set>

#include "node_builder.h"

namespace opdiff::onednn {

class Program : public sdk::Model {
 public:
  // `fuse`: element-wise operators become post-operations of the primitive before them.
  Program(sdk::Graph graph, bool fuse);
  sdk::RunResult run(const sdk::TensorMap& inputs) override;
  std::optional<std::vector<sdk::Kernel>> kernels() override;

 private:
  struct Entry {
    Kernel kernel;
    Fusion planned, fusion;  // what could be fused, and what is
    bool late = false;       // built at each run: it needs values or shapes that only a run has
    bool absorbed = false;   // computed by an earlier node's post-operations
    sdk::Failure failure;    // outcome "" while there is none
  };

  void prepare(std::size_t index);
  void build(std::size_t index, bool everything_known);
  void build_now(std::size_t index, bool everything_known);
  void bind(const std::string& name, const sdk::Tensor& tensor);
  sdk::Tensor take(const std::string& name) const;

  sdk::Graph graph_;
  std::vector<Entry> entries_;
  ValueMap values_;
  bool has_run_ = false;
  std::set<std::string> late_;               // values that only a run has
  std::map<std::string, std::string> dead_;  // values that a failed node leaves out, and that node
};

// For each node, those after it that can be its post-operations (empty for most).
std::vector<Fusion> find_fusions(const sdk::Graph& graph);

}  // namespace opdiff::onednn
