// A worker process: started in a process group of its own, watched while it works, and ended without a trace. It knows
// frames, not what is in them; workers/worker_backend.h does.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workers/backend.h"
#include "workers/temporary.h"
#include "workers/wire.h"

namespace opdiff {

struct Program {
  std::vector<std::string> arguments;  // the first is the file's absolute path
  // On top of the engine's own environment; nullopt removes a variable.
  std::map<std::string, std::optional<std::string>> environment;
};

struct Limits {
  double seconds = 300;
  std::int64_t resident_bytes = 0;  // of the whole process group; 0: three quarters of the machine's memory
  const std::atomic<bool>* interrupted = nullptr;  // once true, what is running is killed
};

class WorkerProcess {
 public:
  // Standard input is empty, standard output and error are the log, file descriptor 3 is the wire; no other
  // descriptor of the engine is open in it. TMPDIR is a folder of its own that goes with it.
  static Expected<std::unique_ptr<WorkerProcess>> start(const Program& program);
  ~WorkerProcess();  // kills what is left
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Sends a frame and waits for one. On failure (outcome `crash`, `timeout` or `out-of-memory`) the process group has
  // been killed and reaped.
  tl::expected<WireFrame, Outcome> exchange(WireFrame request, const Limits& limits);

  // Kills the group and says why: what the caller found wrong (or, of a process that has ended by itself, how, if
  // `prefer_ending`) and the end of its log.
  Outcome kill(OutcomeKind kind, std::string_view why, bool prefer_ending = false);
  // Waits for a process that has been told to go, then kills what is left.
  void finish(double seconds);

  bool alive() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  // The last lines that it wrote to standard output and error, joined by " | ".
  std::string log_tail() const;

 private:
  WorkerProcess() = default;
  void drain_log();
  void end_group();
  std::int64_t resident_bytes();
  std::string ending() const;

  pid_t pid_ = -1;
  std::optional<int> wait_status_;
  FileDescriptor socket_;
  FileDescriptor log_;
  std::string log_text_;  // the last kLogBytes at most
  TemporaryFolder temporary_;
  std::vector<pid_t> members_;  // of the group, without the leader; looked up every kMembersInterval
  double members_time_ = 0;
};

// Memory of this machine in bytes.
std::int64_t machine_memory();

}  // namespace opdiff
