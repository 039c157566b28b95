// Which backends are on this machine, and how the worker of a spec is started. workers/install.h puts them there;
// docs/formats/manifest.md says where they are.
#pragma once

#include <optional>

#include "workers/manifest.h"
#include "workers/spec.h"
#include "workers/worker_backend.h"

namespace opdiff {

// An environment that is ready, or an interpreter of the user's.
struct Installed {
  std::string name;
  std::string version;
  std::filesystem::path folder;  // the environment, or what the bound interpreter calls its prefix
  std::filesystem::path python;  // of `native` unused
  bool bound = false;
};

// "cp311" -> environments/NAME@VERSION-cp311
std::filesystem::path environment_folder(const std::string& name, const std::string& version, const std::string& tag);
std::filesystem::path binding_file(const std::string& name);

// The binding first, then environments by version, newest first.
std::vector<Installed> installed_backends(const std::string& name);

// How to start the worker that `spec` means, with `threads` threads (0: as many as the machine has; the spec's own
// option `threads` wins). When it is not there the error names the command that gets it. `faulty` is not one of these:
// workers/open.h.
Expected<Launch> resolve(const BackendSpec& spec, int threads = 0);
Expected<Launch> launch_of(const Manifest& manifest, const Installed& installed, const BackendSpec& spec, int threads);

// Undoes what keeps the pool from spinning: for a worker that has the machine to itself.
void let_threads_spin(Program* program);

// keep_freed_memory() (base/memory.h) for a worker.
void let_freed_memory_stay(Program* program);

// The program will count its memory (sdk/preload/peak_memory.cpp).
Expected<void> preload_memory_counter(Program* program);

struct BackendListing {
  Manifest manifest;
  std::vector<Installed> installed;  // of `builtin`: empty
  std::string missing;               // why it cannot be used, and what to do; empty when it can
};
Expected<std::vector<BackendListing>> list_backends();

// Dotted numbers compare as numbers: 1.9 < 1.10.
bool version_less(const std::string& a, const std::string& b);

}  // namespace opdiff
