// What plan/ and locate/ know of a backend: it prepares graphs and runs them. Implemented by a worker process
// (workers/worker_backend.h) and by the fault planter that wraps one (workers/faulty.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/training.h"

namespace opdiff {

// The closed set of what can become of a case on a backend.
enum class OutcomeKind { ok, unsupported, error, crash, timeout, out_of_memory };
std::string_view to_string(OutcomeKind kind);  // "ok", "unsupported", ..., "out-of-memory"

// What a backend executes: one call of its own, and the nodes of the graph that the call stands for.
struct Kernel {
  std::string name;                // the backend's: "FusedConv"
  std::vector<std::string> nodes;  // their ids; empty where the backend cannot tell, or where it only moves data
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::ok;
  std::string reason;  // one line for a person; empty when ok
  // Only where PrepareOptions::kernels asks, of the first outcome that knows and of every later one of its graph.
  // Nothing: the backend does not say.
  std::optional<std::vector<Kernel>> kernels;
  // Of a run only:
  TensorMap outputs;
  std::vector<double> wall_ms;            // one a repeat
  double cpu_ms = 0;                      // of all repeats; 0 where the backend does not say
  std::map<std::string, double> node_ms;  // by node id, where the backend knows
  std::map<std::string, std::pair<OutcomeKind, std::string>> node_failures;  // by node id, isolated graphs only
  std::vector<std::int64_t> peak_bytes;  // one a repeat; empty unless OpenOptions::count_memory

  bool ok() const { return kind == OutcomeKind::ok; }
  static Outcome failure(OutcomeKind kind, std::string reason) {
    Outcome outcome;
    outcome.kind = kind;
    outcome.reason = std::move(reason);
    return outcome;
  }
};

struct BackendInfo {
  std::string spec;  // as the user wrote it: "onnxruntime@1.23.2:opt=basic"
  std::string name;  // "onnxruntime"
  std::string version;
  std::string build;
  std::string device;
  std::string isa;
  std::vector<std::string> operators;  // {"*"}: whatever it can import
  std::vector<DType> dtypes;
  std::vector<std::string> passes;  // optimisation passes that `disable=A+B` can switch off one by one
  bool gradient = false;
  bool importing = false;
};

// A backward node where the backend computes no gradients: known without asking, which would be once a node.
bool lacks_gradient(const BackendInfo& info, const Node& node);
inline constexpr std::string_view kNoGradients = "the backend computes no gradients";

struct PrepareOptions {
  bool isolated = false;  // the nodes share no edge and must not influence each other
  bool profile = false;   // time each node
  bool kernels = false;   // say what is executed (Outcome::kernels), which may take time
  // Of a whole training graph: what the framework's own autodiff may do instead of the graph's backward nodes. Must
  // outlive the call only.
  const Training* training = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  // Gives `graph` to the framework as one model, so that its own optimisations happen. On ok(), `*handle` can be run
  // until released. A dead worker is restarted on the next call; handles of the dead one then report `crash`.
  virtual Outcome prepare(const Graph& graph, const PrepareOptions& options, int* handle) = 0;
  virtual Outcome run(int handle, const TensorMap& inputs, int repeat = 1) = 0;
  virtual void release(int handle) = 0;
};

// prepare, run, release.
Outcome run_once(Backend& backend, const Graph& graph, const TensorMap& inputs, const PrepareOptions& options = {});

}  // namespace opdiff
