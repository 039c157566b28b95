#include "forms/backends.h"

#include "workers/manifest.h"

namespace opdiff {

Expected<FormBackend> form_backend(const BackendSpec& spec) {
  OPDIFF_TRY(const BackendSpec base, innermost(spec));
  OPDIFF_TRY(const Manifest manifest, find_manifest(base.name));
  FormBackend backend{to_string(spec), to_string(spec)};
  BackendSpec plain = spec;
  bool differs = false;
  for (const auto& [key, value] : manifest.plain) {
    if (base.option(key) == value) continue;
    differs = true;
    OPDIFF_TRY(plain, with_option(plain, key, value));
  }
  if (differs) backend.plain = to_string(plain);
  return backend;
}

Expected<Backend*> Workers::get(const std::string& spec) {
  auto& backend = open_[spec];
  if (!backend) {
    OPDIFF_TRY(backend, open_backend(spec, options_));
  }
  return backend.get();
}

Expected<std::unique_ptr<Backend>> Workers::without(const std::string& spec,
                                                    const std::vector<std::string>& passes) const {
  OPDIFF_TRY(const BackendSpec parsed, parse_spec(spec));
  OPDIFF_TRY(const BackendSpec variant, without_passes(parsed, passes));
  return open_backend(variant, options_);
}

}  // namespace opdiff
