#include "workers/process.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/utf8.h"
#include "workers/spawn.h"

namespace opdiff {
namespace {

constexpr std::size_t kLogBytes = 64u << 10;
constexpr std::size_t kTailBytes = 800;     // what of it goes into a reason
constexpr double kPollInterval = 0.010;     // design.md section 4
constexpr double kMembersInterval = 0.100;  // a scan of /proc costs about a millisecond
constexpr double kLastWords = 0.5;          // how long a process that closed its socket may take to end by itself

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::int64_t resident_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  std::int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

// Processes of a group, found by their fifth field in /proc/PID/stat; the second is in parentheses and may hold
// anything.
std::vector<pid_t> members_of(pid_t group) {
  std::vector<pid_t> members;
  DIR* folder = opendir("/proc");
  if (!folder) return members;
  while (const dirent* entry = readdir(folder)) {
    const pid_t pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0 || pid == group) continue;
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    const auto end = text.rfind(')');
    if (end == std::string::npos) continue;
    char state = 0;
    int parent = 0, own_group = 0;
    if (std::sscanf(text.c_str() + end + 1, " %c %d %d", &state, &parent, &own_group) == 3 && own_group == group) {
      members.push_back(pid);
    }
  }
  closedir(folder);
  return members;
}

std::vector<std::string> merged_environment(const Program& program, const std::string& temporary) {
  auto changes = program.environment;
  changes["TMPDIR"] = temporary;
  std::vector<std::string> result;
  for (char** item = environ; *item; ++item) {
    const std::string text = *item;
    if (!changes.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) result.push_back(name + "=" + *value);
  }
  return result;
}

}  // namespace

std::int64_t machine_memory() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
}

Expected<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const Program& program) {
  std::unique_ptr<WorkerProcess> process(new WorkerProcess);
  OPDIFF_TRY(process->temporary_, TemporaryFolder::make());
  OPDIFF_TRY(auto spawned, spawn(program.arguments, merged_environment(program, process->temporary_.path().string())));
  process->pid_ = spawned.pid;
  process->socket_ = std::move(spawned.socket);
  process->log_ = std::move(spawned.log);
  return process;
}

WorkerProcess::~WorkerProcess() { end_group(); }

tl::expected<WireFrame, Outcome> WorkerProcess::exchange(WireFrame request, const Limits& limits) {
  OPDIFF_CHECK(alive());
  const double deadline = now() + limits.seconds;
  const std::int64_t allowed = limits.resident_bytes > 0 ? limits.resident_bytes : machine_memory() / 4 * 3;
  double next_look = now() + kPollInterval;
  FrameWriter writer(std::move(request));
  FrameReader reader;
  while (true) {
    pollfd waiting[2] = {{socket_.get(), static_cast<short>(POLLIN | (writer.done() ? 0 : POLLOUT)), 0},
                         {log_.get(), POLLIN, 0}};
    const double pause = std::clamp(std::min(next_look, deadline) - now(), 0.0, kPollInterval);
    poll(waiting, 2, static_cast<int>(pause * 1000) + 1);
    if (waiting[1].revents) drain_log();
    if (waiting[0].revents) {
      const auto sent = writer.step(socket_.get());
      const auto received = reader.step(socket_.get());
      if (received && *received) {
        if (!writer.done()) return tl::unexpected(kill(OutcomeKind::crash, "it answered before it was asked"));
        return reader.take();
      }
      if (!received && !reader.closed()) {
        return tl::unexpected(
            kill(OutcomeKind::crash, fmt::format("it broke the protocol: {}", received.error().message)));
      }
      if (!received || !sent) {
        finish(kLastWords);
        return tl::unexpected(
            kill(OutcomeKind::crash, received ? sent.error().message : received.error().message, true));
      }
    }
    if (limits.interrupted != nullptr && limits.interrupted->load()) {
      return tl::unexpected(kill(OutcomeKind::timeout, "interrupted"));
    }
    const double time = now();
    if (time >= deadline) {
      return tl::unexpected(kill(OutcomeKind::timeout, fmt::format("no answer within {:g} s", limits.seconds)));
    }
    if (time >= next_look) {
      next_look = time + kPollInterval;
      const std::int64_t resident = resident_bytes();
      if (resident > allowed) {
        return tl::unexpected(kill(OutcomeKind::out_of_memory,
                                   fmt::format("{} MB resident; the limit is {} MB", resident >> 20, allowed >> 20)));
      }
    }
  }
}

std::int64_t WorkerProcess::resident_bytes() {
  const double time = now();
  if (time - members_time_ >= kMembersInterval) {
    members_time_ = time;
    members_ = members_of(pid_);
  }
  std::int64_t sum = resident_of(pid_);
  for (const pid_t member : members_) sum += resident_of(member);
  return sum;
}

void WorkerProcess::drain_log() {
  char buffer[4096];
  while (log_) {
    const ssize_t got = read(log_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    if (got == 0) {
      log_.reset();
      break;
    }
    log_text_.append(buffer, static_cast<std::size_t>(got));
    if (log_text_.size() > 2 * kLogBytes) log_text_.erase(0, log_text_.size() - kLogBytes);
  }
}

void WorkerProcess::end_group() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  if (!wait_status_) {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    wait_status_ = status;
  }
  drain_log();
  socket_.reset();
  log_.reset();
  pid_ = -1;
}

void WorkerProcess::finish(double seconds) {
  const double deadline = now() + seconds;
  while (alive()) {
    siginfo_t info{};
    // The process stays a zombie, so that its group's number is not given to another before the group is killed.
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid_) break;
    if (now() >= deadline) break;
    drain_log();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Outcome WorkerProcess::kill(OutcomeKind kind, std::string_view why, bool prefer_ending) {
  // Ours is the signal only if it had not ended by itself.
  siginfo_t info{};
  const bool ended =
      alive() && waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  end_group();
  std::string reason =
      ended && prefer_ending ? fmt::format("the worker {}", ending()) : fmt::format("the worker was stopped: {}", why);
  const std::string tail = log_tail();
  if (!tail.empty()) reason += "; its last words: " + tail;
  return Outcome::failure(kind, reason);
}

std::string WorkerProcess::ending() const {
  const int status = wait_status_.value_or(0);
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

std::string WorkerProcess::log_tail() const {
  std::string_view text = log_text_;
  if (text.size() > kTailBytes) text.remove_prefix(text.size() - kTailBytes);
  std::string result, line;
  const auto flush = [&] {
    if (line.find_first_not_of(" \t\r") != std::string::npos) result += (result.empty() ? "" : " | ") + line;
    line.clear();
  };
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      flush();
    } else {
      line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  flush();
  return escape_controls(replace_invalid_utf8(result));
}

}  // namespace opdiff
