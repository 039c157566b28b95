#include "workers/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

namespace opdiff {
namespace {

constexpr int kWorkerSocket = 3;  // docs/formats/wire.md
constexpr int kExecStatus = 4;    // closed by a successful exec

struct ChildPlan {
  char* const* arguments;
  char* const* environment;
  int socket;
  int output;
  int status;
  pid_t parent;
};

// Between fork and exec only async-signal-safe calls are allowed: other threads may have held any lock.
[[noreturn]] void become_worker(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // the engine died before prctl
  // First out of the way of the numbers that they will get.
  const int socket = fcntl(plan.socket, F_DUPFD, 16);
  const int output = fcntl(plan.output, F_DUPFD, 16);
  const int status = fcntl(plan.status, F_DUPFD, 16);
  const int nothing = open("/dev/null", O_RDONLY);
  if (socket < 0 || output < 0 || status < 0 || nothing < 0) _exit(127);
  dup2(nothing, 0);
  dup2(output, 1);
  dup2(output, 2);
  dup2(socket, kWorkerSocket);
  dup2(status, kExecStatus);
  fcntl(kExecStatus, F_SETFD, FD_CLOEXEC);
  close_range(kExecStatus + 1, ~0u, 0);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // When the machine runs out of memory, the worker should go and not the engine.
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) {
    if (write(score, "500", 3) < 0) {
    }
    close(score);
  }
  struct sigaction plain{};
  plain.sa_handler = SIG_DFL;
  for (int number = 1; number < 32; ++number) sigaction(number, &plain, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (chdir("/") != 0) _exit(127);
  execve(plan.arguments[0], plan.arguments, plan.environment);
  const int error = errno;
  if (write(kExecStatus, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

// Runs functions, one after the other, on the thread that all workers are children of.
class SpawnThread {
 public:
  static SpawnThread& instance() {
    static auto* thread = new SpawnThread;  // never destroyed: its end would kill the workers
    return *thread;
  }
  pid_t run(std::packaged_task<pid_t()> task) {
    auto result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
    return result.get();
  }

 private:
  SpawnThread() {
    std::thread([this] {
      // Signals are for the engine's other threads.
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, nullptr);
      while (true) {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [this] { return !tasks_.empty(); });
        auto task = std::move(tasks_.front());
        tasks_.erase(tasks_.begin());
        lock.unlock();
        task();
      }
    }).detach();
  }
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<std::packaged_task<pid_t()>> tasks_;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

Expected<Spawned> spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  OPDIFF_CHECK(!arguments.empty());
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return make_error("cannot make a socket pair: {}", strerror(errno));
  }
  FileDescriptor ours(sockets[0]), theirs(sockets[1]);
  int output[2], status[2];
  if (pipe2(output, O_CLOEXEC) != 0) return make_error("cannot make a pipe: {}", strerror(errno));
  FileDescriptor log(output[0]), log_end(output[1]);
  if (pipe2(status, O_CLOEXEC) != 0) return make_error("cannot make a pipe: {}", strerror(errno));
  FileDescriptor status_read(status[0]), status_write(status[1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  fcntl(log.get(), F_SETFL, O_NONBLOCK);

  const auto argument_pointers = pointers(arguments);
  const auto environment_pointers = pointers(environment);
  const ChildPlan plan{
      argument_pointers.data(), environment_pointers.data(), theirs.get(), log_end.get(), status_write.get(), getpid()};
  const pid_t pid = SpawnThread::instance().run(std::packaged_task<pid_t()>([&plan] {
    const pid_t child = fork();
    if (child == 0) become_worker(plan);
    return child;
  }));
  if (pid < 0) return make_error("cannot start a process for {}: {}", arguments[0], strerror(errno));
  setpgid(pid, pid);  // whoever is first, the group is there before anyone may want to kill it
  status_write.reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = read(status_read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got > 0) {
    waitpid(pid, nullptr, 0);
    return make_error("cannot start {}: {}", arguments[0], strerror(error));
  }
  return Spawned{pid, std::move(ours), std::move(log)};
}

}  // namespace opdiff
