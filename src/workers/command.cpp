#include "workers/command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "workers/wire.h"

namespace opdiff {
namespace {

constexpr std::size_t kOutputBytes = 64u << 10;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Expected<CommandResult> run_command(const std::vector<std::string>& arguments, const CommandOptions& options) {
  std::vector<std::string> environment;
  for (char** item = environ; *item; ++item) {
    const std::string text = *item;
    if (!options.environment.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  for (const auto& [name, value] : options.environment) {
    if (value) environment.push_back(name + "=" + *value);
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return make_error("cannot make a pipe: {}", strerror(errno));
  FileDescriptor reading(ends[0]), writing(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writing.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, writing.get(), 2);
  std::vector<std::string> texts = arguments;
  auto argument_pointers = pointers(texts);
  auto environment_pointers = pointers(environment);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argument_pointers[0], &actions, nullptr, argument_pointers.data(),
                                 environment_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  writing.reset();
  if (error != 0) return make_error("cannot start {}: {}", arguments[0], strerror(error));

  std::ofstream log;
  if (!options.log.empty()) log.open(options.log, std::ios::app | std::ios::binary);
  CommandResult result;
  std::string line;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(reading.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (log) log.write(buffer, got).flush();
    result.output.append(buffer, static_cast<std::size_t>(got));
    if (result.output.size() > 2 * kOutputBytes) result.output.erase(0, result.output.size() - kOutputBytes);
    for (ssize_t i = 0; options.on_line && i < got; ++i) {
      if (buffer[i] == '\n' || line.size() > kOutputBytes) {
        options.on_line(line);
        line.clear();
      } else {
        line += buffer[i];
      }
    }
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace opdiff
