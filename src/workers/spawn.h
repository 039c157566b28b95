// fork and exec of a worker. All forks are made by one thread that lives as long as the engine: the kernel sends
// PDEATHSIG when the thread that forked ends, not when its process does (prctl(2)).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "workers/wire.h"

namespace opdiff {

struct Spawned {
  pid_t pid = -1;
  FileDescriptor socket;  // our end, non-blocking
  FileDescriptor log;     // read end of its standard output and error, non-blocking
};

// `arguments[0]` is an absolute path; `environment` is the whole of it, NAME=VALUE.
Expected<Spawned> spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment);

}  // namespace opdiff
