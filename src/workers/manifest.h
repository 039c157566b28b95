// backends/NAME/manifest.toml (docs/formats/manifest.md), and where opdiff's own files and the user's data are.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"

namespace opdiff {

enum class ManifestKind { python, native, builtin };

struct Installation {
  std::vector<std::string> packages;  // as pip takes them; {version}
  bool dependencies = true;
};

struct Manifest {
  std::string name;
  ManifestKind kind = ManifestKind::python;
  std::string about;
  std::string version;                             // the default
  std::string module;                              // what a bound interpreter must be able to import
  double megabytes = 0;                            // of the download
  std::string download;                            // its size in words, "up to 3 MB" where the manifest has none
  std::string worker;                              // python: the file beside the manifest
  std::string source;                              // native: the folder of CMakeLists.txt, relative to the manifest
  std::map<std::string, std::string> cache;        // native: CMake cache variables
  std::map<std::string, std::string> environment;  // for the worker
  std::map<std::string, std::string> options;      // what users may write in a spec, for people
  std::map<std::string, std::string> plain;        // options that switch its optimiser off; "": when not given
  std::vector<Installation> installations;
  std::filesystem::path folder;
};

Expected<Manifest> read_manifest(const std::filesystem::path& file);
// Of all folders of backends/, by name. A manifest that cannot be read is an error.
Expected<std::vector<Manifest>> all_manifests();
// The error lists the backends there are.
Expected<Manifest> find_manifest(const std::string& name);

// The folder that holds backends/ and sdk/: above the program, or where it was built.
Expected<std::filesystem::path> opdiff_root();
// $OPDIFF_HOME, else $XDG_DATA_HOME/opdiff, else ~/.local/share/opdiff.
std::filesystem::path opdiff_home();
// $XDG_CACHE_HOME/opdiff, else ~/.cache/opdiff.
std::filesystem::path opdiff_cache();

}  // namespace opdiff
