#include "workers/environment.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/memory.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

std::string replaced(std::string text, std::string_view key, const std::string& value) {
  for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + value.size())) {
    text.replace(at, key.size(), value);
  }
  return text;
}

std::optional<Installed> binding_of(const std::string& name) {
  std::error_code ignored;
  const fs::path file = binding_file(name);
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  try {
    const auto table = toml::parse_file(file.string());
    Installed binding;
    binding.name = name;
    binding.version = table["version"].value_or(std::string());
    binding.python = table["python"].value_or(std::string());
    binding.folder = binding.python.parent_path().parent_path();
    binding.bound = true;
    if (!binding.python.empty()) return binding;
  } catch (const toml::parse_error&) {
  }
  return std::nullopt;  // `opdiff backend add NAME --python PATH` writes it anew
}

Expected<int> thread_count(const BackendSpec& spec, int threads) {
  const std::string text = spec.option("threads");
  if (text.empty()) return threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 1024) {
    return make_error("backend '{}': threads={} is no number from 1 to 1024", to_string(spec), text);
  }
  return value;
}

Expected<fs::path> engine_program() {
  if (const char* value = std::getenv("OPDIFF_ENGINE"); value && *value) return fs::path(value);
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path folder = self.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (fs::is_regular_file(folder / "opdiff", ignored)) return folder / "opdiff";
  }
  return make_error("cannot find the program opdiff above {}; set OPDIFF_ENGINE to its path",
                    self.parent_path().string());
}

}  // namespace

fs::path environment_folder(const std::string& name, const std::string& version, const std::string& tag) {
  return opdiff_home() / "environments" / fmt::format("{}@{}-{}", name, version, tag);
}

fs::path binding_file(const std::string& name) { return opdiff_home() / "bindings" / (name + ".toml"); }

bool version_less(const std::string& a, const std::string& b) {
  const auto parts = [](const std::string& text) {
    std::vector<std::pair<long, std::string>> result;
    std::size_t start = 0;
    while (start <= text.size()) {
      const auto end = std::min(text.find('.', start), text.size());
      const std::string part = text.substr(start, end - start);
      result.emplace_back(std::strtol(part.c_str(), nullptr, 10), part);
      start = end + 1;
    }
    return result;
  };
  return parts(a) < parts(b);
}

std::vector<Installed> installed_backends(const std::string& name) {
  std::vector<Installed> result;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(opdiff_home() / "environments", error)) {
    const std::string folder = entry.path().filename().string();
    const auto tag = folder.rfind("-cp");
    if (!folder.starts_with(name + "@") || tag == std::string::npos) continue;
    std::error_code ignored;
    if (!fs::exists(entry.path() / "ready", ignored)) continue;
    Installed found;
    found.name = name;
    found.version = folder.substr(name.size() + 1, tag - name.size() - 1);
    found.folder = entry.path();
    found.python = entry.path() / "bin/python";
    result.push_back(std::move(found));
  }
  std::sort(result.begin(), result.end(),
            [](const Installed& a, const Installed& b) { return version_less(b.version, a.version); });
  if (const auto binding = binding_of(name)) result.insert(result.begin(), *binding);
  return result;
}

Expected<Launch> launch_of(const Manifest& manifest, const Installed& installed, const BackendSpec& spec, int threads) {
  OPDIFF_TRY(const fs::path root, opdiff_root());
  OPDIFF_TRY(const int count, thread_count(spec, threads));
  Launch launch;
  launch.spec = to_string(spec);
  launch.options = spec.options;
  launch.options.erase("threads");
  auto& program = launch.program;
  switch (manifest.kind) {
    case ManifestKind::python:
      program.arguments = {installed.python.string(), "-u", (root / "sdk/python/opdiff_worker.py").string(),
                           (manifest.folder / manifest.worker).string()};
      if (!installed.bound) {
        program.environment["PYTHONPATH"] = std::nullopt;
        program.environment["PYTHONHOME"] = std::nullopt;
        program.environment["PYTHONNOUSERSITE"] = "1";
      }
      break;
    case ManifestKind::native: program.arguments = {(installed.folder / "worker/worker").string()}; break;
    case ManifestKind::builtin: {
      OPDIFF_TRY(const fs::path engine, engine_program());
      program.arguments = {engine.string(), "worker", manifest.name};
      break;
    }
  }
  const std::string number = std::to_string(count);
  for (const char* name : {"OPDIFF_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                           "NUMEXPR_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"}) {
    program.environment[name] = number;
  }
  program.environment["TF_NUM_INTEROP_THREADS"] = "1";
  // Pools of several workers that spin against each other on few cores cost up to sixteen times (facts: LeNet-5).
  program.environment["OMP_WAIT_POLICY"] = "passive";
  program.environment["GOMP_SPINCOUNT"] = "0";
  program.environment["KMP_BLOCKTIME"] = "0";
  program.environment["PYTHONUNBUFFERED"] = "1";
  for (const auto& [name, value] : manifest.environment) {
    std::string text = replaced(value, "{env}", installed.folder.string());
    text = replaced(text, "{cache}", opdiff_cache().string());
    text = replaced(text, "{root}", root.string());
    program.environment[name] = replaced(text, "{threads}", number);
  }
  return launch;
}

void let_threads_spin(Program* program) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) program->environment.erase(name);
}

void let_freed_memory_stay(Program* program) {
  const std::string most = std::to_string(kKeptBytes);
  program->environment["MALLOC_MMAP_THRESHOLD_"] = program->environment["MALLOC_TRIM_THRESHOLD_"] = most;
}

Expected<void> preload_memory_counter(Program* program) {
  OPDIFF_TRY(const fs::path engine, engine_program());
  const fs::path library = engine.parent_path() / "libopdiff_peak.so";
  std::error_code ignored;
  if (!fs::is_regular_file(library, ignored)) {
    return make_error("memory cannot be counted: there is no {} (CMake's target opdiff_peak; none with sanitizers)",
                      library.string());
  }
  if (library.string().find_first_of(" :") != std::string::npos) {
    return make_error("memory cannot be counted: LD_PRELOAD takes no path with a space or a colon: {}",
                      library.string());
  }
  const auto own = program->environment.find("LD_PRELOAD");
  const char* const inherited = std::getenv("LD_PRELOAD");
  const std::string others = own != program->environment.end() ? own->second.value_or("") : inherited ? inherited : "";
  program->environment["LD_PRELOAD"] = library.string() + (others.empty() ? "" : ":" + others);
  return {};
}

Expected<Launch> resolve(const BackendSpec& spec, int threads) {
  OPDIFF_TRY(const Manifest manifest, find_manifest(spec.name));
  if (manifest.kind == ManifestKind::builtin) {
    if (!spec.version.empty()) return make_error("backend '{}': {} has no versions", to_string(spec), spec.name);
    return launch_of(manifest, {}, spec, threads);
  }
  const auto all = installed_backends(spec.name);
  const auto wanted = [&](const std::string& version) {
    return std::find_if(all.begin(), all.end(), [&](const Installed& item) { return item.version == version; });
  };
  auto found = all.begin();  // the binding, or the newest
  if (!spec.version.empty()) {
    found = wanted(spec.version);
  } else if (!all.empty() && !all.front().bound && wanted(manifest.version) != all.end()) {
    found = wanted(manifest.version);
  }
  if (found == all.end()) {
    std::string have;
    for (const auto& item : all) have += (have.empty() ? "; installed: " : ", ") + item.version;
    return make_error("backend '{}' is not installed{}; run: opdiff backend add {}{}", to_string(spec), have, spec.name,
                      spec.version.empty() ? "" : "==" + spec.version);
  }
  return launch_of(manifest, *found, spec, threads);
}

Expected<std::vector<BackendListing>> list_backends() {
  OPDIFF_TRY(auto manifests, all_manifests());
  std::vector<BackendListing> result;
  for (auto& manifest : manifests) {
    BackendListing listing;
    if (manifest.kind == ManifestKind::builtin) {
      if (const auto engine = engine_program(); !engine) listing.missing = engine.error().message;
    } else {
      listing.installed = installed_backends(manifest.name);
      if (listing.installed.empty()) {
        listing.missing =
            fmt::format("not installed; run: opdiff backend add {} ({})", manifest.name, manifest.download);
      }
    }
    listing.manifest = std::move(manifest);
    result.push_back(std::move(listing));
  }
  return result;
}

}  // namespace opdiff
