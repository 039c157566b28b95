// The faults that `faulty:...` can plant: what each does to a graph, where it appears, and how it is written in a spec.
// The backend that plants them is workers/faulty.h.
#pragma once

#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "workers/graph_edit.h"
#include "workers/spec.h"

namespace opdiff {

struct Fault;

// Where a fault acts: on the graph that is sent, on that and on a tensor that it takes with each run (fed), on what
// comes back, or on the worker's process.
enum class FaultPlace { graph, fed, result, process };

// A node in a run: its reference inputs and outputs, and which output is changed.
struct FaultyCall {
  const Node& node;
  int opset;
  std::span<const Tensor* const> inputs;
  const Tensor& right;
  std::size_t output;
};

struct FaultKind {
  const char* name;
  FaultPlace place;
  // Of FaultPlace::graph and fed: edits the node at `position`. The error says why the fault does not fit it. The
  // tensor that a fed one takes is the last of the graph's inputs after it.
  Expected<void> (*edit)(GraphEdit&, Graph&, std::size_t position, const Fault&);
  const char* what;  // for people
  // Of FaultPlace::fed: what is added to each element of the output. The error says why the fault does not fit.
  Expected<std::vector<double>> (*added)(const FaultyCall&, const Fault&) = nullptr;
};

// The closed set of them.
std::span<const FaultKind> fault_kinds();

struct Fault {
  const FaultKind* kind = nullptr;
  std::string op, node, pair_from, pair_to;
  std::string attribute, value;
  std::optional<double> size, relative;
  std::optional<std::int64_t> index, axis, count, input, output;
  DType to = DType::bf16;
};

Expected<Fault> parse_fault(const BackendSpec& spec);

// How specs and known.toml name a node's operator: "Conv", of other domains of ours "gradient.Conv".
std::string operator_name(const Node& node);
// The output that a fault changes: `output`, by default the first that the node gives.
Expected<std::size_t> changed_output(const Node& node, const Fault& fault);

// Nodes of the graph at which the fault appears, by index.
std::vector<std::size_t> matches(const Graph& graph, const Fault& fault);
// Tensors that depend on the outputs of `seeds`, those included.
std::set<std::string> reached(const Graph& graph, const std::vector<std::size_t>& seeds);

// A fault of FaultPlace::fed at the node at `position` of `graph`.
class FedFault {
 public:
  FedFault(const Graph& graph, std::size_t position);
  // The tensor that it takes when the graph is run on `inputs`: what the fault adds to the changed output.
  Expected<Tensor> tensor(const TensorMap& inputs, const Fault& fault) const;

 private:
  Graph computation_;  // the node, last, and all it is computed from
};

// The whole text as a number, or nothing.
template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace opdiff
