// A backend that is a worker process (workers/process.h) and speaks the wire protocol (docs/formats/wire.md). Whatever
// the worker does, dies of or sends, the caller gets an Outcome.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>

#include "workers/backend.h"
#include "workers/process.h"

namespace opdiff {

struct WorkerLimits {
  double hello_seconds = 180;                      // imports of frameworks take 0.2 to 8 s on a quiet machine
  double prepare_seconds = 300;                    // compilers: the first graph of torch's inductor takes up to 176 s
  double run_seconds = 300;                        // inductor compiles in the first run
  std::int64_t resident_bytes = 0;                 // 0: three quarters of the machine's memory
  const std::atomic<bool>* interrupted = nullptr;  // once true, what is running is killed
};

// What workers/environment.h finds for a spec: how to start the worker, and what to tell it in `hello`.
struct Launch {
  std::string spec;  // as the user wrote it
  Program program;
  std::map<std::string, std::string> options;
};

class WorkerBackend : public Backend {
 public:
  // Starts the worker and says hello; the error is what the worker says, or how it died. With `even_dead` a worker that
  // dies before it has answered is a backend, too: its death is the outcome of its first graph, and later ones try
  // again.
  static Expected<std::unique_ptr<WorkerBackend>> start(Launch launch, const WorkerLimits& limits,
                                                        bool even_dead = false);
  ~WorkerBackend() override;

  const BackendInfo& info() const override { return info_; }
  Outcome prepare(const Graph& graph, const PrepareOptions& options, int* handle) override;
  // Outputs are what the worker says they are: one of another shape or dtype than the graph declares is the judge's to
  // name. A missing or unknown name is an `error`.
  Outcome run(int handle, const TensorMap& inputs, int repeat = 1) override;
  void release(int handle) override;

  // -1 when there is no process at the moment.
  pid_t pid() const { return process_ ? process_->pid() : -1; }

 private:
  struct Prepared {
    std::vector<std::string> outputs;
    bool isolated = false;
    const char* verb = "run";
    std::optional<std::set<std::string>> nodes;  // their ids, where kernels are asked for
    std::optional<std::vector<Kernel>> kernels;  // once the worker has said
    std::string death;                           // why the worker that held it is gone; empty while it lives
  };

  WorkerBackend(Launch launch, const WorkerLimits& limits);
  Outcome ensure_alive();
  Outcome say_hello();
  // Sends a request; the reply is valid JSON with the right id and a known outcome. Not ok(): reply is null.
  Outcome call(nlohmann::json request, const ArenaBuilder* arena, double seconds, nlohmann::json* reply,
               FileDescriptor* reply_arena);
  Outcome died(Outcome outcome);
  Outcome broke_protocol(std::string_view what);
  Outcome read_run_reply(const nlohmann::json& reply, const FileDescriptor& arena, const Prepared& prepared);
  // ok() with the kernels that this reply or one before it has told, where they were asked for.
  Outcome told_kernels(const nlohmann::json& reply, Prepared& prepared);

  Launch launch_;
  WorkerLimits limits_;
  BackendInfo info_;
  std::unique_ptr<WorkerProcess> process_;
  std::optional<Outcome> death_at_start_;  // not told yet
  int deaths_at_start_ = 0;
  Outcome last_death_;
  std::map<int, Prepared> handles_;
  int next_handle_ = 1;
  std::int64_t next_id_ = 1;
  std::mutex mutex_;
};

}  // namespace opdiff
