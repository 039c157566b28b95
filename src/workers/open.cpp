#include "workers/open.h"

#include "workers/environment.h"

namespace opdiff {

Expected<std::unique_ptr<Backend>> open_backend(const BackendSpec& spec, const OpenOptions& options) {
  OPDIFF_TRY(auto launch, resolve(spec, options.threads));
  OPDIFF_TRY(auto backend, WorkerBackend::start(std::move(launch), options.limits));
  return backend;
}

Expected<std::unique_ptr<Backend>> open_backend(std::string_view spec, const OpenOptions& options) {
  OPDIFF_TRY(const auto parsed, parse_spec(spec));
  return open_backend(parsed, options);
}

}  // namespace opdiff
