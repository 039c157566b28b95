// opdiff forms: the equivalent and fused forms of operators, and what backends make of each.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/file.h"
#include "base/shell.h"
#include "cli/commands.h"
#include "cli/interruption.h"
#include "cli/progress_line.h"
#include "forms/table.h"
#include "graph/text.h"
#include "plan/comparison.h"

namespace opdiff {
namespace {

struct Arguments {
  std::vector<std::string> forms, backends = {"onnxruntime", "torch", "onednn"}, dtypes = {"f32"}, set;
  std::string direction = "both", kind;
  int cases = 20, bundle = 10, threads = 0;
  std::uint64_t seed = 1;
  double time_limit = 300;
  bool no_time = false, profile = false, coverage = false, quiet = false;
  std::string markdown, csv, json, plot;
};

std::string_view kind_name(FormKind kind) { return kind == FormKind::fusion ? "fusion" : "equivalence"; }

Expected<Parameters> parse_parameters(const std::vector<std::string>& texts) {
  Parameters parameters;
  for (const std::string& text : texts) {
    const std::size_t at = text.find('=');
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    if (at == std::string::npos || at == 0) return make_error("--set {}: expected NAME=NUMBER", text);
    const auto [stop, error] = std::from_chars(text.data() + at + 1, end, value);
    if (error != std::errc() || stop != end || at + 1 == text.size())
      return make_error("--set {}: expected NAME=NUMBER", text);
    const auto [known, is_new] = parameters.emplace(text.substr(0, at), value);
    if (!is_new && known->second != value)
      return make_error("--set {}: '{}' is {} already", text, known->first, known->second);
  }
  return parameters;
}

Expected<std::vector<const Form*>> chosen(const Arguments& a) {
  std::vector<const Form*> forms;
  for (const std::string& name : a.forms) {
    const Form* form = find_form(name);
    if (!form) return make_error("no form '{}'; `opdiff forms` lists them", name);
    if (!a.kind.empty() && kind_name(form->kind) != a.kind)
      return make_error("--kind {}: '{}' is of the kind {}", a.kind, name, kind_name(form->kind));
    if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
  }
  if (a.forms.empty())
    for (const Form* form : all_forms())
      if (a.kind.empty() || kind_name(form->kind) == a.kind) forms.push_back(form);
  return forms;
}

void list(const Arguments& a) {
  std::size_t width = 0;
  for (const Form* form : all_forms()) width = std::max(width, form->name.size());
  for (const Form* form : all_forms())
    if (a.kind.empty() || kind_name(form->kind) == a.kind)
      fmt::print("{:<{}}  {:<11}  {}\n", form->name, width, kind_name(form->kind), form->title);
}

int show(const std::string& name) {
  const Form* form = find_form(name);
  if (!form) return cannot_run({fmt::format("no form '{}'; `opdiff forms` lists them", name)});
  fmt::print("{}: {}\n\n{}\n\n", form->name, form->title, form->mathematics);
  for (const Condition& condition : form->conditions) fmt::print("needs {}\n", condition.text);
  if (!form->no_gradient.empty()) fmt::print("forward only: {}\n", form->no_gradient);
  fmt::print("\nparameters (--set NAME=NUMBER):\n");
  for (const ParameterSpec& p : form->parameters)
    fmt::print("  {:<10} {} (drawn from {} to {}; timed at {})\n", p.name, p.documentation, p.low, p.high, p.timed);
  std::string regions;
  for (const FormRegion& region : form->regions)
    regions += fmt::format("{}{}", regions.empty() ? "" : "; ", region.name);
  fmt::print("\nregions: {}\n", regions);
  Rng rng(1);
  const auto parameters = draw_parameters(*form, form->regions[0], {}, rng);
  if (!parameters) return cannot_run(parameters.error());
  const auto drawn = build_case(*form, *parameters, DType::f32, 1, false);
  if (!drawn) return cannot_run(drawn.error());
  fmt::print("\nwith {}:\n", to_string(*parameters));
  for (const Side& side : drawn->sides) {
    fmt::print("  {}\n", side.name);
    for (const Node& node : side.graph.nodes) fmt::print("    {}\n", to_text(node));
  }
  return kClean;
}

// Checks one form in one dtype and direction; the rows go to the report. Status kClean, or why it cannot run.
class Run {
 public:
  Run(const Arguments& a, const std::atomic<bool>* interrupted)
      : a_(a),
        interrupted_(interrupted),
        workers_(open_options(false)),
        second_(open_options(false)),
        third_(open_options(false)),
        counting_(open_options(true)) {}

  Expected<FormReport> run() {
    OPDIFF_TRY(const Parameters fixed, parse_parameters(a_.set));
    OPDIFF_TRY(const std::vector<const Form*> forms, chosen(a_));
    std::vector<DType> dtypes;
    for (const std::string& name : a_.dtypes) {
      const auto dtype = parse_dtype(name);
      if (!dtype || !is_float(*dtype)) return make_error("--dtype {}: expected f32, f64, f16 or bf16", name);
      if (std::find(dtypes.begin(), dtypes.end(), *dtype) == dtypes.end()) dtypes.push_back(*dtype);
    }
    std::string joined;
    for (const std::string& text : a_.backends) joined += (joined.empty() ? "" : ",") + text;
    OPDIFF_TRY(const std::vector<BackendSpec> specs, parse_spec_list(joined));
    std::vector<FormBackend> backends;
    for (const BackendSpec& spec : specs) {
      OPDIFF_TRY(FormBackend backend, form_backend(spec));
      const auto same = [&](const FormBackend& other) { return other.spec == backend.spec; };
      if (std::none_of(backends.begin(), backends.end(), same)) backends.push_back(std::move(backend));
    }
    for (const Form* form : forms)  // before anything runs
      if (!fixed.empty()) {
        Rng rng(a_.seed);
        OPDIFF_TRY(const Parameters ignored, draw_parameters(*form, {}, fixed, rng));
      }
    FormReport report;
    report.version = OPDIFF_VERSION;
    std::vector<Observation> observations;
    ProgressLine line(!a_.quiet && isatty(STDERR_FILENO) != 0);
    for (const Form* form : forms)
      for (const DType dtype : dtypes)
        for (const bool gradient : {false, true}) {
          if (interrupted_->load()) break;
          if (a_.direction == (gradient ? "forward" : "gradient")) continue;
          FormCheckOptions options;
          options.dtype = dtype;
          options.gradient = gradient;
          options.cases = a_.cases;
          options.bundle = a_.bundle;
          options.fixed = fixed;
          options.command = "opdiff forms check";
          options.compare.seed = a_.seed;
          options.compare.threads = a_.threads > 0 ? a_.threads : static_cast<int>(std::thread::hardware_concurrency());
          options.compare.interrupted = interrupted_;
          options.compare.progress = [&line](const Progress& p) { line.show(p.what, p.done, p.total); };
          auto done = check_form(*form, backends, workers_, report.coverage, options);
          if (!done && interrupted_->load()) break;
          if (!done) return tl::unexpected<Error>(done.error());
          FormCheck checked = *std::move(done);
          if (!a_.no_time && !interrupted_->load() && !checked.rows.empty()) {
            line.show(fmt::format("{} {}: times", form->name, dtype_name(dtype)), 0, 0);
            MeasureOptions measure{dtype, gradient, fixed, a_.seed};
            measure.lives = {&second_, &third_};
            if (a_.profile) measure.counting = &counting_;
            if (const auto measured = measure_form(*form, workers_, measure, checked.rows); !measured)
              checked.notes.push_back(fmt::format("{}: not timed: {}", form->name, measured.error().message));
          }
          for (FormRow& row : checked.rows) report.rows.push_back(std::move(row));
          for (Observation& seen : checked.observations) observations.push_back(std::move(seen));
          for (std::string& note : checked.notes)
            if (std::find(report.notes.begin(), report.notes.end(), note) == report.notes.end())
              report.notes.push_back(std::move(note));
        }
    report.findings = find(observations);
    return report;
  }

 private:
  OpenOptions open_options(bool count_memory) const {
    OpenOptions options;
    options.limits.interrupted = interrupted_;
    options.limits.prepare_seconds = options.limits.run_seconds = a_.time_limit;
    options.threads = a_.threads;
    options.count_memory = count_memory;
    return options;
  }

  const Arguments& a_;
  const std::atomic<bool>* const interrupted_;
  Workers workers_;
  Workers second_, third_;  // for times
  Workers counting_;        // for memory
};

int check(const Arguments& a, const std::string& command) {
  const std::atomic<bool>* const interrupted = watch_for_interruption();
  auto report = Run(a, interrupted).run();
  if (!report) return cannot_run(report.error());
  report->command = command;
  if (interrupted->load()) report->notes.push_back("interrupted: the figures are of what was run");
  const std::string table = markdown(*report, a.coverage);
  if (!a.quiet) fmt::print("{}", summary(*report, a.coverage));
  const std::string title = fmt::format("# Equivalent and fused forms\n\nPrinted by `{}`.\n\n", command);
  // A file that cannot be written must not hide what was found, nor keep the others from being written.
  bool unwritten = false;
  const auto say = [&](const Expected<void>& written) {
    if (written) return;
    cannot_run(written.error());
    unwritten = true;
  };
  for (const auto& [file, text] :
       {std::pair{a.markdown, title + table}, {a.csv, csv(*report)}, {a.json, json(*report)}})
    if (!file.empty()) say(write_file_atomically(file, text));
  if (!a.plot.empty()) say(plot(*report, a.plot));
  if (a.quiet)
    fmt::print("{} cases, {} alarms, {} findings\n", report->cases(), report->alarms(), report->findings.size());
  if (interrupted->load() && a.quiet) fmt::print(stderr, "opdiff: interrupted\n");
  if (report->alarms() > 0) {
    const bool died = std::any_of(report->findings.begin(), report->findings.end(),
                                  [](const Finding& finding) { return is_death(finding.kind.failure); });
    return died ? kBackendDied : kDefect;  // as of compare: 3 outranks 1
  }
  return interrupted->load() || unwritten ? kCannotRun : kClean;
}

}  // namespace

void add_forms_command(CLI::App& app, int* status) {
  auto a = std::make_shared<Arguments>();
  CLI::App* forms = app.add_subcommand("forms", "Equivalent and fused forms of operators: error and speed of each");
  forms->require_subcommand(0, 1);
  forms->add_option("--kind", a->kind, "equivalence or fusion; default both")
      ->check(CLI::IsMember({"equivalence", "fusion"}));
  auto name = std::make_shared<std::string>();
  forms->add_option("form", *name, "one form: the same as `show`");
  forms->footer(
      "Without a form or a subcommand the forms are listed, one a line.\n\nExamples:\n  opdiff forms\n  opdiff forms "
      "conv-bn\n  opdiff forms check conv-bn --backends onnxruntime,onednn:postops=1");
  forms->callback([a, forms, name, status] {
    if (!forms->get_subcommands().empty()) return;
    *status = kClean;
    if (!name->empty())
      *status = show(*name);
    else
      list(*a);
  });

  CLI::App* shown = forms->add_subcommand("show", "One form: its mathematics, conditions and parameters");
  shown->add_option("form", *name, "its name")->required();
  shown->footer("Example:\n  opdiff forms show conv-bn");
  shown->callback([name, status] { *status = show(*name); });

  CLI::App* checked = forms->add_subcommand(
      "check", "Run each side on each backend: its nodes alone, whole with the optimiser off, whole as configured");
  checked->add_option("forms", a->forms, "their names; default all");
  checked->add_option("--kind", a->kind, "all of a kind: equivalence or fusion")
      ->check(CLI::IsMember({"equivalence", "fusion"}));
  checked->add_option("--backends", a->backends,
                      "specs, separated by commas; default onnxruntime,torch,onednn. The optimiser is switched off as "
                      "the backend's manifest says");
  checked->add_option("--dtype", a->dtypes, "f32 (default), f64, f16, bf16; may be several");
  checked->add_option("--direction", a->direction, "forward, gradient or both (default)")
      ->check(CLI::IsMember({"forward", "gradient", "both"}));
  checked->add_flag_callback("--gradient", [a] { a->direction = "gradient"; }, "the same as --direction gradient");
  checked->add_option("--cases", a->cases, "of each form, dtype and direction")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  checked->add_option("--bundle", a->bundle, "cases that go to a backend as one graph")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  checked->add_option("--set", a->set, "NAME=NUMBER: a parameter that is not drawn; may be repeated");
  checked->add_option("--seed", a->seed, "of the drawn cases")->check(whole_number())->capture_default_str();
  checked->add_option("--threads", a->threads, "of each backend and of the judge; default: all")
      ->check(CLI::Range(0, 1024));
  checked->add_option("--time-limit", a->time_limit, "seconds for one request to a backend")
      ->check(number_in(0.001, 1e9))
      ->capture_default_str();
  checked->add_flag("--no-time", a->no_time, "no times and no kernels");
  checked->add_flag("--profile", a->profile, "peak memory, too");
  checked->add_flag("--coverage", a->coverage, "print how often each region was met");
  checked->add_flag("--quiet", a->quiet, "one line");
  checked->add_option("--markdown", a->markdown, "write the tables to this file, too");
  checked->add_option("--csv", a->csv, "the rows");
  checked->add_option("--json", a->json, "everything");
  checked->add_option("--plot", a->plot, "speed-up against error, as SVG");
  checked->footer(
      "Exit status: 0 clean, 1 a wrong result was found, 2 cannot run, 3 a backend crashed, hung or ran out of "
      "memory.\n\n"
      "Examples:\n"
      "  opdiff forms check conv-bn\n"
      "  opdiff forms check --kind fusion --backends onnxruntime,onnxruntime:opt=basic,torch:compile=inductor\n"
      "  opdiff forms check conv-as-winograd --set kernel=3 stride=2   (refused: the condition is named)\n"
      "  opdiff forms check --dtype f32 bf16 --cases 200 --markdown forms.md --plot forms.svg");
  checked->callback([a, checked, status] {
    std::string command = "opdiff forms check";
    for (const std::string& form : a->forms) command += " " + shell_quoted(form);
    for (const CLI::Option* option : checked->get_options()) {
      if (option->count() == 0 || option->get_positional()) continue;
      command += " " + option->get_name();
      if (option->get_items_expected() != 0)
        for (const std::string& result : option->results()) command += " " + shell_quoted(result);
    }
    *status = check(*a, command);
  });
}

}  // namespace opdiff
