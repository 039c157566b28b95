// From a spec to a backend that is ready to work: the one door that plan/, locate/ and the CLI use.
#pragma once

#include <memory>

#include "workers/backend.h"
#include "workers/spec.h"
#include "workers/worker_backend.h"

namespace opdiff {

struct OpenOptions {
  WorkerLimits limits;
  int threads = 0;             // per worker; 0: as many as the machine has
  bool even_dead = false;      // see WorkerBackend::start
  bool alone = false;          // no other worker, nor the engine, computes while this one does: its threads may spin
  bool over_and_over = false;  // the same graphs run again and again: the worker keeps what it frees (base/memory.h)
  bool count_memory = false;   // Outcome::peak_bytes: sdk/preload in the worker, the framework's own arenas off
};

// Starts the worker and says hello. `faulty:base=SPEC,...` opens the base and plants the fault (workers/faulty.h). The
// error says what is missing and which command gets it.
Expected<std::unique_ptr<Backend>> open_backend(const BackendSpec& spec, const OpenOptions& options = {});
Expected<std::unique_ptr<Backend>> open_backend(std::string_view spec, const OpenOptions& options = {});

}  // namespace opdiff
