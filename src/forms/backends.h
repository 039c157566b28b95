// The configurations that forms are checked on, each with its twin whose optimiser is off, and their workers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "workers/open.h"

namespace opdiff {

struct FormBackend {
  std::string spec;   // as configured: its optimiser may fuse
  std::string plain;  // the same with nothing fused; equal to `spec` where there is no optimiser
};

// What turns a backend's optimiser off is said by the manifest (`plain`).
Expected<FormBackend> form_backend(const BackendSpec& spec);

// Opens each spec once, when it is first asked for.
class Workers {
 public:
  explicit Workers(OpenOptions options) : options_(std::move(options)) {}
  Expected<Backend*> get(const std::string& spec);
  // The same backend with passes switched off on top of its spec; a new worker each time.
  Expected<std::unique_ptr<Backend>> without(const std::string& spec, const std::vector<std::string>& passes) const;

 private:
  const OpenOptions options_;
  std::map<std::string, std::unique_ptr<Backend>> open_;
};

}  // namespace opdiff
