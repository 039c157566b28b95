#include "workers/install.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "workers/command.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

// numpy for the SDK's own tests: the release that all backends are given.
constexpr const char* kSdkNumpy = "1.26.4";

std::string replaced(std::string text, std::string_view key, const std::string& value) {
  for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + value.size())) {
    text.replace(at, key.size(), value);
  }
  return text;
}

std::string last_lines(const std::string& text, int count) {
  auto at = text.find_last_not_of('\n');
  if (at == std::string::npos) return "no output";
  const std::string trimmed = text.substr(0, at + 1);
  for (at = trimmed.size(); count > 0 && at != std::string::npos && at > 0; --count) at = trimmed.rfind('\n', at - 1);
  return at == std::string::npos ? trimmed : trimmed.substr(at + (trimmed[at] == '\n'));
}

std::string base_python() {
  const char* value = std::getenv("OPDIFF_PYTHON");
  return value && *value ? value : "python3";
}

Expected<std::string> python_tag(const std::string& python) {
  const auto result = run_command({python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"});
  if (!result) return tl::unexpected(result.error());
  if (result->status != 0 || !result->output.starts_with("cp")) {
    return make_error("{} is no working Python 3: {}", python, last_lines(result->output, 2));
  }
  return result->output.substr(0, result->output.find_first_of("\r\n"));
}

Expected<BackendSpec> spec_of(const std::string& requirement) {
  std::string text = requirement;
  if (const auto at = text.find("=="); at != std::string::npos) text.replace(at, 2, "@");
  auto spec = parse_spec(text);
  if (!spec || !spec->options.empty()) {
    return make_error("'{}' is no backend to add or remove; write NAME, NAME==VERSION or NAME@VERSION", requirement);
  }
  return spec;
}

Expected<FileDescriptor> lock(const fs::path& file, const AddOptions& options) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) return make_error("cannot make {}: {}", file.parent_path().string(), error.message());
  FileDescriptor descriptor(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!descriptor) return make_error("cannot open {}: {}", file.string(), strerror(errno));
  if (flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    options.say("another opdiff is at it: waiting");
    while (flock(descriptor.get(), LOCK_EX) != 0) {
      if (errno != EINTR) return make_error("cannot lock {}: {}", file.string(), strerror(errno));
    }
  }
  return descriptor;
}

// Written under another name first: a file that is there is whole.
Expected<void> write_file(const fs::path& file, const std::string& text) {
  const fs::path partial = fmt::format("{}.{}.part", file.string(), getpid());
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  std::ofstream(partial, std::ios::binary) << text;
  fs::rename(partial, file, error);
  if (error) return make_error("cannot write {}: {}", file.string(), error.message());
  return {};
}

// A command of the installation; its output goes to the log and, on failure, its end into the error.
Expected<std::string> install_step(const std::vector<std::string>& arguments, const fs::path& log,
                                   const AddOptions& options, const std::string& what) {
  CommandOptions command;
  command.log = log;
  command.environment = {{"PYTHONPATH", std::nullopt}, {"PYTHONHOME", std::nullopt}, {"PIP_USER", "0"}};
  command.on_line = [&](std::string_view line) {
    const auto text = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    if (text.starts_with("Downloading")) options.say(std::string(text));
  };
  auto result = run_command(arguments, command);
  if (!result) return tl::unexpected(result.error());
  if (result->status != 0) {
    return make_error("{} failed (status {}):\n{}\nThe whole log: {}", what, result->status,
                      last_lines(result->output, 8), log.string());
  }
  return std::move(result->output);
}

Expected<void> make_environment(const fs::path& folder, const std::vector<Installation>& installations,
                                const std::string& version, const AddOptions& options) {
  std::error_code error;
  fs::remove_all(folder, error);  // what an interrupted run left
  fs::create_directories(folder, error);
  if (error) return make_error("cannot make {}: {}", folder.string(), error.message());
  const fs::path log = folder / "install.log";
  OPDIFF_TRY(const auto made,
             install_step({base_python(), "-m", "venv", folder.string()}, log, options,
                          "making a virtual environment (on Debian it needs the package python3-venv)"));
  for (const auto& installation : installations) {
    std::vector<std::string> arguments = {
        (folder / "bin/python").string(), "-m", "pip", "install", "--no-input", "--progress-bar", "off"};
    if (!installation.dependencies) arguments.push_back("--no-deps");
    std::string names;
    for (const auto& package : installation.packages) {
      arguments.push_back(replaced(package, "{version}", version));
      names += " " + arguments.back();
    }
    options.say("pip install" + names);
    OPDIFF_TRY(const auto installed, install_step(arguments, log, options, "pip install" + names));
  }
  OPDIFF_TRY(const auto frozen,
             install_step({(folder / "bin/python").string(), "-m", "pip", "freeze", "--disable-pip-version-check"}, log,
                          options, "pip freeze"));
  return write_file(folder / "lock.txt", frozen);
}

Expected<void> build_worker(const Manifest& manifest, const fs::path& folder, const AddOptions& options) {
  OPDIFF_TRY(const fs::path root, opdiff_root());
  options.say("building the worker");
  std::vector<std::string> configure = {"cmake",
                                        "--fresh",  // it may have been configured from another checkout
                                        "-S",
                                        (manifest.folder / manifest.source).lexically_normal().string(),
                                        "-B",
                                        (folder / "worker").string(),
                                        "-DCMAKE_BUILD_TYPE=Release",
                                        "-DOPDIFF_ROOT=" + root.string()};
  for (const auto& [name, value] : manifest.cache) {
    configure.push_back(fmt::format("-D{}={}", name, replaced(value, "{env}", folder.string())));
  }
  const fs::path log = folder / "install.log";
  OPDIFF_TRY(const auto configured, install_step(configure, log, options, "configuring the worker with CMake"));
  OPDIFF_TRY(const auto built,
             install_step({"cmake", "--build", (folder / "worker").string(), "--target", "worker", "-j2"}, log, options,
                          "building the worker"));
  std::error_code ignored;
  if (!fs::exists(folder / "worker/worker", ignored)) {
    return make_error("the build made no {}; its CMakeLists.txt must have a target `worker`",
                      (folder / "worker/worker").string());
  }
  return {};
}

Expected<BackendInfo> try_worker(const Manifest& manifest, const Installed& installed) {
  BackendSpec spec;
  spec.name = manifest.name;
  spec.version = installed.version;
  OPDIFF_TRY(auto launch, launch_of(manifest, installed, spec, 0));
  OPDIFF_TRY(const auto backend, WorkerBackend::start(std::move(launch), {}));
  return backend->info();
}

Expected<Added> bind(const Manifest& manifest, const BackendSpec& spec, const AddOptions& options) {
  if (manifest.kind != ManifestKind::python) {
    return make_error("--python: {} does not run in Python", manifest.name);
  }
  std::error_code error;
  const fs::path python = fs::absolute(options.python, error);
  if (error || !fs::exists(python, error)) return make_error("--python {}: there is no such file", options.python);
  OPDIFF_TRY(const auto tag, python_tag(python.string()));
  Added added;
  added.installed = {manifest.name, spec.version, python.parent_path().parent_path(), python, true};
  auto info = try_worker(manifest, added.installed);
  if (!info) {
    return make_error("{} cannot run the {} worker (it needs numpy and {}): {}", options.python, manifest.name,
                      manifest.module, info.error().message);
  }
  added.info = *std::move(info);
  if (!spec.version.empty() && spec.version != added.info.version) {
    return make_error("{} has {} {}, not {}", options.python, manifest.name, added.info.version, spec.version);
  }
  added.installed.version = added.info.version;
  std::string quoted = python.string();
  if (quoted.find_first_of("\"\\\n") != std::string::npos)
    return make_error("--python {}: a path with quotes cannot be recorded", quoted);
  OPDIFF_RETURN_IF_ERROR(write_file(binding_file(manifest.name),
                                    fmt::format("python = \"{}\"\nversion = \"{}\"\n", quoted, added.info.version)));
  return added;
}

}  // namespace

Expected<Added> add_backend(const std::string& requirement, const AddOptions& options) {
  OPDIFF_TRY(BackendSpec spec, spec_of(requirement));
  OPDIFF_TRY(const Manifest manifest, find_manifest(spec.name));
  if (!options.python.empty()) return bind(manifest, spec, options);
  if (manifest.kind == ManifestKind::builtin) {
    return make_error("{} is part of opdiff: there is nothing to add", spec.name);
  }
  if (spec.version.empty()) spec.version = manifest.version;
  OPDIFF_TRY(const auto tag, python_tag(base_python()));
  Added added;
  const fs::path folder = environment_folder(spec.name, spec.version, tag);
  added.installed = {spec.name, spec.version, folder, folder / "bin/python", false};
  OPDIFF_TRY(const auto held, lock(folder.string() + ".lock", options));
  std::error_code ignored;
  const bool ready = fs::exists(folder / "ready", ignored);
  if (!ready) {
    options.say(
        fmt::format("{} {}: {} to download, into {}", spec.name, spec.version, manifest.download, folder.string()));
    OPDIFF_RETURN_IF_ERROR(make_environment(folder, manifest.installations, spec.version, options));
  }
  // A worker of an environment that is ready is built again: its sources may have changed.
  if (manifest.kind == ManifestKind::native) OPDIFF_RETURN_IF_ERROR(build_worker(manifest, folder, options));
  auto info = try_worker(manifest, added.installed);
  if (!info) return make_error("{}\nThe environment: {}", info.error().message, folder.string());
  added.info = *std::move(info);
  if (added.info.version != spec.version) {
    return make_error("{} {} was asked for, but what was installed says that it is {}; environment: {}", spec.name,
                      spec.version, added.info.version, folder.string());
  }
  if (!ready) OPDIFF_RETURN_IF_ERROR(write_file(folder / "ready", added.info.version + "\n"));
  return added;
}

Expected<std::vector<std::string>> remove_backend(const std::string& requirement) {
  OPDIFF_TRY(const BackendSpec spec, spec_of(requirement));
  const auto all = installed_backends(spec.name);
  std::vector<Installed> chosen;
  for (const auto& item : all) {
    if (spec.version.empty() ? item.bound : item.version == spec.version) chosen.push_back(item);
  }
  if (chosen.empty() && spec.version.empty() && all.size() == 1) chosen = all;
  if (chosen.empty()) {
    std::string have;
    for (const auto& item : all) have += fmt::format("{}{}=={}", have.empty() ? "" : ", ", item.name, item.version);
    return make_error("nothing to remove for '{}'; installed: {}", requirement, have.empty() ? "nothing" : have);
  }
  std::vector<std::string> removed;
  for (const auto& item : chosen) {
    std::error_code error;
    if (item.bound) {
      fs::remove(binding_file(item.name), error);  // the interpreter is the user's
      removed.push_back(binding_file(item.name).string());
    } else {
      OPDIFF_TRY(const auto held, lock(item.folder.string() + ".lock", {}));
      fs::remove(item.folder / "ready", error);  // first, so that a removal cut short leaves nothing that looks whole
      fs::remove_all(item.folder, error);
      removed.push_back(item.folder.string());
    }
    if (error) return make_error("cannot remove {}: {}", removed.back(), error.message());
  }
  return removed;
}

Expected<fs::path> sdk_python(const AddOptions& options) {
  OPDIFF_TRY(const auto tag, python_tag(base_python()));
  const fs::path folder = environment_folder("sdk", kSdkNumpy, tag);
  OPDIFF_TRY(const auto held, lock(folder.string() + ".lock", options));
  std::error_code ignored;
  if (!fs::exists(folder / "ready", ignored)) {
    OPDIFF_RETURN_IF_ERROR(make_environment(folder, {{{"numpy=={version}"}, false}}, kSdkNumpy, options));
    OPDIFF_RETURN_IF_ERROR(write_file(folder / "ready", std::string(kSdkNumpy) + "\n"));
  }
  return folder / "bin/python";
}

}  // namespace opdiff
