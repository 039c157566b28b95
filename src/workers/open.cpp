#include "workers/open.h"

#include "workers/environment.h"
#include "workers/faulty.h"

namespace opdiff {
namespace {

constexpr int kMaximumNesting = 4;  // faults on a faulty backend

Expected<std::unique_ptr<Backend>> open_nested(const BackendSpec& spec, const OpenOptions& options, int depth) {
  if (spec.name != "faulty") {
    OPDIFF_TRY(auto launch, resolve(spec, options.threads));
    if (options.alone) let_threads_spin(&launch.program);
    if (options.over_and_over) let_freed_memory_stay(&launch.program);
    if (options.count_memory) OPDIFF_RETURN_IF_ERROR(preload_memory_counter(&launch.program));
    OPDIFF_TRY(auto backend, WorkerBackend::start(std::move(launch), options.limits, options.even_dead));
    return backend;
  }
  if (depth >= kMaximumNesting)
    return make_error("'{}': at most {} faults on one backend", to_string(spec), kMaximumNesting);
  if (!spec.version.empty()) return make_error("'{}': faulty has no versions; its base may have one", to_string(spec));
  if (!spec.options.contains("base")) return make_error("'{}': base=SPEC is missing", to_string(spec));
  OPDIFF_TRY(const auto base_spec, parse_spec(spec.option("base")));
  OPDIFF_TRY(auto base, open_nested(base_spec, options, depth + 1));
  return plant_fault(spec, std::move(base));
}

}  // namespace

Expected<std::unique_ptr<Backend>> open_backend(const BackendSpec& spec, const OpenOptions& options) {
  return open_nested(spec, options, 0);
}

Expected<std::unique_ptr<Backend>> open_backend(std::string_view spec, const OpenOptions& options) {
  OPDIFF_TRY(const auto parsed, parse_spec(spec));
  return open_backend(parsed, options);
}

}  // namespace opdiff
