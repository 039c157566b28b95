#include "workers/manifest.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace opdiff {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kMaximumManifest = 1u << 20;

std::optional<ManifestKind> kind_from(const std::string& text) {
  if (text == "python") return ManifestKind::python;
  if (text == "native") return ManifestKind::native;
  if (text == "builtin") return ManifestKind::builtin;
  return std::nullopt;
}

Expected<std::map<std::string, std::string>> strings_of(const toml::table& table, std::string_view key) {
  std::map<std::string, std::string> result;
  const toml::node* node = table.get(key);
  if (!node) return result;
  if (!node->is_table()) return make_error("'{}' is no table", key);
  for (const auto& [name, value] : *node->as_table()) {
    const auto text = value.value<std::string>();
    if (!text) return make_error("'{}.{}' is no string", key, std::string_view(name.str()));
    result[std::string(name.str())] = *text;
  }
  return result;
}

Expected<std::vector<Installation>> installations_of(const toml::table& table) {
  std::vector<Installation> result;
  const toml::node* list = table.get("install");
  if (!list) return result;
  if (!list->is_array()) return make_error("'install' is no list of tables; write [[install]]");
  for (const auto& item : *list->as_array()) {
    const toml::table* entry = item.as_table();
    const toml::array* packages = entry ? entry->get_as<toml::array>("packages") : nullptr;
    if (!packages) return make_error("an [[install]] has no list 'packages'");
    Installation installation;
    installation.dependencies = (*entry)["dependencies"].value_or(true);
    for (const auto& package : *packages) {
      const auto text = package.value<std::string>();
      // Not a way to smuggle pip's own options in.
      if (!text || text->empty() || (*text)[0] == '-')
        return make_error("'packages' holds something that is no package");
      installation.packages.push_back(*text);
    }
    result.push_back(std::move(installation));
  }
  return result;
}

Expected<Manifest> manifest_of(const toml::table& table, const fs::path& file) {
  Manifest manifest;
  manifest.folder = file.parent_path();
  manifest.name = table["name"].value_or(std::string());
  if (manifest.name != manifest.folder.filename()) {
    return make_error("name = '{}' is not the name of its folder, '{}'", manifest.name,
                      manifest.folder.filename().string());
  }
  const auto kind_text = table["kind"].value_or(std::string());
  const auto kind = kind_from(kind_text);
  if (!kind) return make_error("kind = '{}' is none of python, native, builtin", kind_text);
  manifest.kind = *kind;
  manifest.about = table["about"].value_or(std::string());
  manifest.version = table["version"].value_or(std::string());
  manifest.module = table["module"].value_or(manifest.name);
  manifest.megabytes = table["megabytes"].value_or(0.0);
  manifest.download = table["download"].value_or(fmt::format("up to {:g} MB", manifest.megabytes));
  manifest.worker = table["worker"].value_or(std::string("worker.py"));
  manifest.source = table["native"]["source"].value_or(std::string("."));
  if (const auto* native = table["native"].as_table()) {
    OPDIFF_TRY(manifest.cache, strings_of(*native, "cache"));
  }
  OPDIFF_TRY(manifest.environment, strings_of(table, "environment"));
  OPDIFF_TRY(manifest.options, strings_of(table, "options"));
  OPDIFF_TRY(manifest.plain, strings_of(table, "plain"));
  OPDIFF_TRY(manifest.installations, installations_of(table));
  if (manifest.kind != ManifestKind::builtin && (manifest.version.empty() || manifest.installations.empty())) {
    return make_error("a backend of kind '{}' needs 'version' and [[install]]", kind_text);
  }
  return manifest;
}

fs::path user_folder(const char* variable, const char* fallback) {
  const char* value = std::getenv(variable);
  if (value && *value == '/') return fs::path(value) / "opdiff";  // XDG: a relative path is to be ignored
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : "/") / fallback / "opdiff";
}

bool is_root(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "sdk/python/opdiff_worker.py", ignored) &&
         fs::is_directory(folder / "backends", ignored);
}

}  // namespace

Expected<Manifest> read_manifest(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) return make_error("{}: {}", file.string(), error.message());
  if (size > kMaximumManifest)
    return make_error("{}: {} bytes; a manifest has at most {}", file.string(), size, kMaximumManifest);
  try {
    const auto table = toml::parse_file(file.string());
    auto manifest = manifest_of(table, file);
    if (!manifest) return with_context(file.string(), manifest.error());
    return manifest;
  } catch (const toml::parse_error& problem) {
    return make_error("{}:{}: {}", file.string(), problem.source().begin.line, problem.description());
  }
}

Expected<std::vector<Manifest>> all_manifests() {
  OPDIFF_TRY(const fs::path root, opdiff_root());
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "backends", error)) {
    if (fs::is_regular_file(entry.path() / "manifest.toml", error)) files.push_back(entry.path() / "manifest.toml");
  }
  std::sort(files.begin(), files.end());
  std::vector<Manifest> manifests;
  for (const auto& file : files) {
    OPDIFF_TRY(auto manifest, read_manifest(file));
    manifests.push_back(std::move(manifest));
  }
  return manifests;
}

Expected<Manifest> find_manifest(const std::string& name) {
  OPDIFF_TRY(const fs::path root, opdiff_root());
  const fs::path file = root / "backends" / name / "manifest.toml";
  std::error_code ignored;
  if (fs::is_regular_file(file, ignored)) return read_manifest(file);
  OPDIFF_TRY(const auto manifests, all_manifests());
  std::string names = "faulty";
  for (const auto& manifest : manifests) names += ", " + manifest.name;
  return make_error("there is no backend '{}'; there are: {}", name, names);
}

Expected<fs::path> opdiff_root() {
  if (const char* value = std::getenv("OPDIFF_ROOT"); value && *value) {
    if (is_root(value)) return fs::path(value);
    return make_error("OPDIFF_ROOT={} holds no backends/ and sdk/python/opdiff_worker.py", value);
  }
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; level < 4 && folder.has_relative_path(); ++level, folder = folder.parent_path()) {
    if (is_root(folder)) return folder;
    if (is_root(folder / "share/opdiff")) return folder / "share/opdiff";
  }
  if (is_root(OPDIFF_SOURCE_DIR)) return fs::path(OPDIFF_SOURCE_DIR);
  return make_error("cannot find opdiff's folders backends/ and sdk/; set OPDIFF_ROOT to the folder that holds them");
}

fs::path opdiff_home() {
  if (const char* value = std::getenv("OPDIFF_HOME"); value && *value) return fs::absolute(value);
  return user_folder("XDG_DATA_HOME", ".local/share");
}

fs::path opdiff_cache() { return user_folder("XDG_CACHE_HOME", ".cache"); }

}  // namespace opdiff
