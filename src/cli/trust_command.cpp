// opdiff trust: how far the oracle can be trusted. Attacks every yardstick from below and above, with no framework;
// then runs generated cases on healthy backends, which must raise no alarm.
#include <unistd.h>

#include <chrono>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/interruption.h"
#include "judge/attack.h"
#include "plan/operator_check.h"
#include "workers/open.h"

namespace opdiff {
namespace {

bool stopped() { return watch_for_interruption()->load(); }

struct TrustArguments {
  std::vector<std::string> backends = {"onnxruntime", "torch", "onednn"}, operators;
  std::vector<std::string> dtype_names;
  std::vector<DType> dtypes;  // empty: all
  int cases = 30;
  bool full = false, gradient = false;
  std::uint64_t seed = 1;
  std::string markdown;
};

// `--full`: the counts that the project promises (issue: 1,000 cases in f32, 200 in f64, f16, bf16).
int cases_of(const TrustArguments& a, DType dtype) {
  if (!a.full) return a.cases;
  return dtype == DType::f32 ? 1000 : 200;
}

std::vector<const MetaOperator*> chosen(const TrustArguments& a) {
  std::vector<const MetaOperator*> operators;
  for (const MetaOperator* op : a.gradient ? all_gradients() : all_operators())
    if (a.operators.empty() || std::find(a.operators.begin(), a.operators.end(), op->name) != a.operators.end())
      operators.push_back(op);
  return operators;
}

// The floating types, or the first of the others; of these those that were asked for.
std::vector<DType> dtypes_of(const MetaOperator& op, const std::vector<DType>& asked) {
  std::vector<DType> types = float_types(op);
  if (types.empty())
    for (int k = 0; k < kDTypeCount && types.empty(); ++k)
      if (op.types & type_bit(static_cast<DType>(k))) types.push_back(static_cast<DType>(k));
  if (!asked.empty())
    std::erase_if(types, [&](DType type) { return std::find(asked.begin(), asked.end(), type) == asked.end(); });
  return types;
}

class Progress {
 public:
  explicit Progress(std::size_t steps) : steps_(steps), terminal_(isatty(STDERR_FILENO)) {}
  void step(const std::string& what) {
    ++done_;
    if (terminal_) fmt::print(stderr, "\r\033[K[{}/{}] {}", done_, steps_, what);
  }
  ~Progress() {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::size_t steps_, done_ = 0;
  bool terminal_;
};

std::string caught(const Caught& c) {
  if (c.planted == 0) return "-";
  return fmt::format("{}/{}{}{}", c.caught, c.planted, c.named > 0 ? fmt::format(", {} named", c.named) : "",
                     c.smallest > 0 ? fmt::format(" ({:g})", c.smallest) : "");
}

struct Report {
  std::string text;
  std::vector<std::string> troubles;
  std::map<std::string, std::int64_t> known;  // "operator on backend: reason (link)"
  std::int64_t honest_cases = 0, alarms = 0, planted = 0, found = 0, backend_cases = 0, backend_alarms = 0,
               backend_known = 0;
};

void attack(const TrustArguments& a, Report& report) {
  report.text +=
      "## The oracle alone\n\nHonest: tensors computed in random admissible arithmetic (order of summation, FMA, "
      "formula, profile); alarms are verdicts beyond `algorithm`.\n"
      "Faults: caught / planted at the promised size (4 deviations on the tensor or a slice, 10 on one element); in "
      "brackets, in deviations, the smallest\n"
      "size from which on every one was caught. `named`: the verdict is `algorithm` with a name, because that "
      "algorithm errs as much. Sizes tried: 1 1.5 2 2.5 3 4 5 6 8 10 15 20 50.\n\n"
      "| operator | dtype | honest | alarms | z rms | z max | error / radius | tensor | slice | element | gross |\n"
      "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  const auto operators = chosen(a);
  Progress progress(operators.size());
  for (const MetaOperator* op : operators) {
    progress.step(display_name(*op));
    for (const DType dtype : dtypes_of(*op, a.dtypes)) {
      if (stopped()) return;
      const int count = cases_of(a, dtype);
      const HonestAttack below = attack_from_below(*op, dtype, a.seed, count);
      const FaultAttack above = attack_from_above(*op, dtype, a.seed, count);
      report.text +=
          fmt::format("| {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2g} | {} | {} | {} | {} |\n", display_name(*op),
                      dtype_name(dtype), below.cases, below.alarms, below.z_rms, below.z_max, below.excess,
                      caught(above.whole), caught(above.row), caught(above.element), caught(above.gross));
      report.honest_cases += below.cases;
      report.alarms += below.alarms;
      for (const Caught* c : {&above.whole, &above.row, &above.element, &above.gross}) {
        report.planted += c->planted;
        report.found += c->caught;
      }
      for (const auto* list : {&below.first_alarms, &above.first_missed})
        report.troubles.insert(report.troubles.end(), list->begin(), list->end());
    }
  }
}

// Status of the run: kClean, or kCannotRun where a backend is missing.
int check_backends(const TrustArguments& a, Report& report) {
  report.text +=
      "\n## Healthy backends\n\nGenerated cases judged; `alarms` counts `unlikely` and `defect`; `known` what an entry "
      "of the backend's known.toml explains (never clean; listed below). Rungs beyond `rounding` are named with their "
      "counts.\n\n"
      "| operator | dtype | backend | cases | unsupported | errors | known | alarms | z rms | z max | error / radius | "
      "beyond `rounding` |\n"
      "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n";
  const auto operators = chosen(a);
  Progress progress(operators.size() * a.backends.size());
  for (const std::string& spec : a.backends) {
    OpenOptions open;
    open.limits.interrupted = watch_for_interruption();
    auto backend = open_backend(spec, open);
    if (!backend) return cannot_run(backend.error());
    const auto known = known_divergences((*backend)->info());
    if (!known) return cannot_run(known.error());
    for (const MetaOperator* op : operators) {
      progress.step(fmt::format("{} on {}", display_name(*op), spec));
      for (const DType dtype : dtypes_of(*op, a.dtypes)) {
        if (stopped()) return kClean;
        if (!offers((*backend)->info(), *op, dtype)) continue;
        CheckOptions options{dtype, a.seed, 0, cases_of(a, dtype), *known};
        const OperatorCheck total = check_operator(
            *op, **backend, options,
            [&](const CheckedCase& c) {
              if (c.known) return;
              if (c.outcome == OutcomeKind::ok
                      ? c.rung >= Rung::unlikely
                      : c.outcome != OutcomeKind::unsupported && c.outcome != OutcomeKind::error)
                report.troubles.push_back(
                    fmt::format("opdiff check {}{} --backend {} --dtype {} --seed {} --only {}: {}", op->name,
                                op->domain == kGradientDomain ? " --gradient" : "", spec, dtype_name(dtype), a.seed,
                                c.index, c.outcome == OutcomeKind::ok ? std::string(to_string(c.rung)) : c.reason));
            },
            watch_for_interruption());
        std::string beyond;
        for (const auto& [what, n] : total.explanations)
          beyond += fmt::format("{}{} x {}", beyond.empty() ? "" : "; ", n, what);
        report.text +=
            fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2g} | {} |\n",
                        display_name(*op), dtype_name(dtype), spec, total.cases, total.unsupported, total.errors,
                        total.known, total.alarms() + total.deaths, total.z_rms, total.z_max, total.excess, beyond);
        for (const auto& [what, n] : total.known_reasons)
          report.known[fmt::format("{} on {}: {}", display_name(*op), spec, what)] += n;
        report.backend_cases += total.cases;
        report.backend_known += total.known;
        report.backend_alarms += total.alarms() + total.deaths;
      }
    }
  }
  return kClean;
}

// As it could be typed again.
std::string command_of(const TrustArguments& a) {
  const auto list = [](std::string_view option, const std::vector<std::string>& values) {
    return values.empty() ? std::string() : fmt::format(" {} {}", option, fmt::join(values, " "));
  };
  return fmt::format("opdiff trust{}{}{}{}{}{}", a.gradient ? " --gradient" : "",
                     a.full ? " --full" : fmt::format(" --cases {}", a.cases), list("--ops", a.operators),
                     list("--backends", a.backends.empty() ? std::vector<std::string>{"none"} : a.backends),
                     list("--dtype", a.dtype_names), a.markdown.empty() ? "" : " --markdown FILE");
}

int trust(TrustArguments a) {
  watch_for_interruption();
  for (const std::string& name : a.dtype_names) {
    const auto dtype = parse_dtype(name);
    if (!dtype) return cannot_run(Error{fmt::format("--dtype {}: there is no such type", name)});
    a.dtypes.push_back(*dtype);
  }
  Report report;
  report.text =
      fmt::format("# How far the oracle can be trusted\n\nPrinted by `{}`; seed {}.\n\n", command_of(a), a.seed);
  attack(a, report);
  const int status = a.backends.empty() ? kClean : check_backends(a, report);
  if (!report.known.empty()) {
    report.text += "\nKnown divergences (docs/found-defects.md):\n\n";
    for (const auto& [what, n] : report.known) report.text += fmt::format("* {} x {}\n", n, what);
  }
  report.text += fmt::format(
      "\n{} honest tensors, {} alarms; {} planted faults, {} caught; {} cases on backends, {} alarms, {} known "
      "divergences.\n",
      report.honest_cases, report.alarms, report.planted, report.found, report.backend_cases, report.backend_alarms,
      report.backend_known);
  if (!report.troubles.empty()) {
    report.text += "\n## To look into\n\n";
    for (const std::string& trouble : report.troubles) report.text += "* " + trouble + "\n";
  }
  if (stopped()) report.text += "\nInterrupted: the figures are of what was run.\n";
  if (!a.markdown.empty()) {
    if (const auto written = write_file_atomically(a.markdown, report.text); !written)
      return cannot_run(written.error());
  }
  fmt::print("{}", report.text);
  if (status != kClean) return status;
  if (stopped()) return kCannotRun;
  return report.alarms || report.backend_alarms || report.found != report.planted ? kDefect : kClean;
}

}  // namespace

void add_trust_command(CLI::App& app, int* status) {
  auto* command =
      app.add_subcommand("trust", "attack the oracle from below and above, and run healthy backends through it");
  auto a = std::make_shared<TrustArguments>();
  auto* backends = command->add_option("--backends", a->backends,
                                       "healthy backends; default onnxruntime torch onednn; `none`: the oracle alone");
  command->add_option("--ops", a->operators, "operators, by ONNX name; default all");
  command->add_option("--dtype", a->dtype_names, "f32, f64, f16, bf16, integer types; may be several; default all");
  command->add_option("--cases", a->cases, "cases of each operator and dtype; default 30")->check(CLI::PositiveNumber);
  command->add_flag("--full", a->full, "1,000 cases in f32, 200 in f64, f16, bf16 (most of an hour)");
  command->add_flag("--gradient", a->gradient, "the operators' gradients instead");
  command->add_option("--seed", a->seed, "default 1")->check(whole_number());
  command->add_option("--markdown", a->markdown, "write the table to this file, too");
  command->footer(
      "Examples:\n  opdiff trust --backends none\n  opdiff trust --ops Conv Softmax --backends onnxruntime --cases "
      "100\n  opdiff trust --full --markdown docs/trust.md");
  command->callback([a, backends, status] {
    if (backends->count() > 0 && a->backends == std::vector<std::string>{"none"}) a->backends.clear();
    *status = trust(*a);
  });
}

}  // namespace opdiff
