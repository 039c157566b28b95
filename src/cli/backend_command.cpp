// opdiff backend add | list | remove: the frameworks that are on this machine.
#include <unistd.h>

#include "cli/commands.h"
#include "workers/faulty.h"
#include "workers/install.h"
#include "workers/open.h"

namespace opdiff {
namespace {

std::string join(const std::vector<std::string>& texts, const char* separator = " ") {
  return fmt::format("{}", fmt::join(texts, separator));
}

std::string dtypes_text(const std::vector<DType>& dtypes) {
  std::string text;
  for (const DType dtype : dtypes) text += (text.empty() ? "" : " ") + std::string(dtype_name(dtype));
  return text;
}

void print_info(const BackendInfo& info, bool passes) {
  fmt::print("    build      {}\n", info.build.empty() ? "-" : info.build);
  fmt::print("    device     {}; instruction set {}\n", info.device, info.isa.empty() ? "-" : info.isa);
  const bool any = info.operators.size() == 1 && info.operators[0] == "*";
  fmt::print("    operators  {}\n",
             any ? "whatever it can import" : fmt::format("{}: {}", info.operators.size(), join(info.operators)));
  fmt::print("    dtypes     {}\n", dtypes_text(info.dtypes));
  if (!info.passes.empty()) {
    fmt::print("    passes     {}\n",
               passes ? join(info.passes) : fmt::format("{} (--passes shows them)", info.passes.size()));
  }
}

int add(const std::string& requirement, const std::string& python) {
  AddOptions options;
  options.python = python;
  options.say = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  const auto added = add_backend(requirement, options);
  if (!added) return cannot_run(added.error());
  const auto& installed = added->installed;
  fmt::print("{} {} is ready{}\n", installed.name, added->info.version,
             installed.bound ? fmt::format(" (bound to {})", installed.python.string()) : "");
  print_info(added->info, false);
  return kClean;
}

// True when its worker answers.
bool list_one(const Manifest& manifest, const Installed* installed, bool passes, bool quick) {
  BackendSpec spec;
  spec.name = manifest.name;
  if (installed) spec.version = installed->version;
  const std::string where = !installed         ? "part of opdiff"
                            : installed->bound ? "bound to " + installed->python.string()
                                               : installed->folder.string();
  fmt::print("  {}  ({})\n", to_string(spec), where);
  std::fflush(stdout);
  if (quick) return true;
  auto launch = launch_of(manifest, installed ? *installed : Installed{}, spec, 0);
  if (!launch) {
    fmt::print("    broken     {}\n", launch.error().message);
    return false;
  }
  const auto backend = WorkerBackend::start(*std::move(launch), {});
  if (!backend) {
    fmt::print("    broken     {}\n", backend.error().message);
    return false;
  }
  print_info((*backend)->info(), passes);
  return true;
}

int list(const std::string& name, bool passes, bool quick) {
  const auto listings = list_backends();
  if (!listings) return cannot_run(listings.error());
  bool all_answer = true, found = name.empty();
  for (const auto& listing : *listings) {
    if (!name.empty() && listing.manifest.name != name) continue;
    found = true;
    fmt::print("{}: {}\n", listing.manifest.name, listing.manifest.about);
    if (!listing.missing.empty()) fmt::print("  missing      {}\n", listing.missing);
    if (listing.manifest.kind == ManifestKind::builtin && listing.missing.empty()) {
      all_answer &= list_one(listing.manifest, nullptr, passes, quick);
    }
    for (const auto& installed : listing.installed) all_answer &= list_one(listing.manifest, &installed, passes, quick);
    for (const auto& [option, what] : listing.manifest.options) fmt::print("    option     {} = {}\n", option, what);
  }
  if (name.empty() || name == "faulty") {
    fmt::print("faulty: any backend with one fault planted: faulty:base=SPEC,op=OP,node=ID,fault=NAME,...\n");
    if (name == "faulty") fmt::print("{}", fault_table());
    return all_answer ? kClean : kCannotRun;
  }
  if (!found) return cannot_run(find_manifest(name).error());
  return all_answer ? kClean : kCannotRun;
}

int remove(const std::string& requirement) {
  const auto removed = remove_backend(requirement);
  if (!removed) return cannot_run(removed.error());
  for (const auto& path : *removed) fmt::print("removed {}\n", path);
  return kClean;
}

struct Arguments {
  std::string requirement, python, name;
  bool passes = false, quick = false;
};

}  // namespace

void add_backend_command(CLI::App& app, int* status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("backend", "Add, list and remove backends (frameworks, by version)");
  command->require_subcommand(1);
  command->footer(
      "Environments are in $OPDIFF_HOME (default ~/.local/share/opdiff), one a backend and version.\n\n"
      "Examples:\n"
      "  opdiff backend list\n"
      "  opdiff backend add onnxruntime==1.23.2       then: --backends onnxruntime@1.23.2\n"
      "  opdiff backend add torch --python .venv/bin/python\n"
      "  opdiff backend remove onnxruntime==1.23.2");

  CLI::App* adding = command->add_subcommand("add", "Install a backend, or bind an interpreter that has it");
  adding->add_option("backend", arguments->requirement, "NAME or NAME==VERSION")->required();
  adding->add_option("--python", arguments->python,
                     "an interpreter of yours that has the framework and numpy; it is not modified");
  adding->footer(
      "Packages come by pip, with pip's own configuration (index, proxy, cache).\n\n"
      "Examples:\n"
      "  opdiff backend add onnxruntime\n"
      "  opdiff backend add torch==2.13.0\n"
      "  opdiff backend add torch --python .venv/bin/python");
  adding->callback([arguments, status] { *status = add(arguments->requirement, arguments->python); });

  CLI::App* listing = command->add_subcommand("list", "What is there, and why something is missing");
  listing->add_option("backend", arguments->name, "only this one; `faulty` shows the faults that can be planted");
  listing->add_flag("--passes", arguments->passes, "name the optimisation passes that can be switched off");
  listing->add_flag("--quick", arguments->quick, "do not start the workers");
  listing->footer(
      "Examples:\n"
      "  opdiff backend list\n"
      "  opdiff backend list onnxruntime --passes\n"
      "  opdiff backend list faulty");
  listing->callback([arguments, status] { *status = list(arguments->name, arguments->passes, arguments->quick); });

  CLI::App* removing =
      command->add_subcommand("remove", "Delete a backend's environment, or forget a bound interpreter");
  removing->add_option("backend", arguments->requirement, "NAME, or NAME==VERSION")->required();
  removing->footer("Example:\n  opdiff backend remove onnxruntime==1.23.2");
  removing->callback([arguments, status] { *status = remove(arguments->requirement); });
}

}  // namespace opdiff
