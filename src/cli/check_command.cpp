// opdiff check OP: one operator on generated cases, judged.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>

#include "base/npy.h"
#include "cli/commands.h"
#include "cli/interruption.h"
#include "graph/onnx_writer.h"
#include "graph/text.h"
#include "plan/operator_check.h"
#include "report/status.h"
#include "workers/open.h"

namespace opdiff {
namespace {

struct CheckArguments {
  std::string op, save;
  std::vector<std::string> dtypes = {"f32"}, backends = {"onnxruntime"};
  int cases = 100, only = -1;
  std::uint64_t seed = 1;
  bool details = false, gradient = false;
};

void print_case(const CheckArguments& a, DType dtype, const std::string& spec, const CheckedCase& c) {
  fmt::print("  case {} ({}, opset {}): ", c.index, c.sample.note, c.sample.opset);
  if (c.outcome != OutcomeKind::ok) {
    fmt::print("{}: {}\n", to_string(c.outcome), c.reason);
  } else {
    for (const Verdict& v : c.verdicts) {
      if (v.rung != c.rung) continue;
      fmt::print("{}{}{}; z rms {:.3g} (limit {:.3g}), largest {:.3g} (limit {:.3g}), excess {:.3g}\n",
                 to_string(v.rung), v.explanation.empty() ? "" : ", ", v.explanation, v.z_rms, v.z_rms_limit, v.z_max,
                 v.z_max_limit, v.excess);
      if (v.worst.index >= 0)
        fmt::print("    worst at {}: got {:.9g}, right {:.9g}, radius {:.3g}, deviation {:.3g}\n",
                   to_string(v.worst.coordinates), v.worst.got, v.worst.centre, v.worst.radius, v.worst.deviation);
      if (!v.note.empty()) fmt::print("    {}\n", v.note);
      break;
    }
  }
  if (c.known) fmt::print("    known: {} ({})\n", c.known->reason, c.known->link);
  fmt::print("    repeat: opdiff check {}{} --backend {} --dtype {} --seed {} --only {}\n", a.op,
             a.gradient ? " --gradient" : "", spec, dtype_name(dtype), a.seed, c.index);
}

Expected<void> save_case(const CheckArguments& a, const CheckedCase& c) {
  const Graph graph = sample_graph(c.sample);
  OPDIFF_RETURN_IF_ERROR(write_onnx_file(graph, a.save + ".onnx"));
  std::map<std::string, Tensor> inputs;
  for (const ValueInfo& input : graph.inputs)
    for (std::size_t k = 0; k < c.sample.node.inputs.size(); ++k)
      if (c.sample.node.inputs[k] == input.name) inputs[input.name] = *c.sample.inputs[k];
  return write_npz(a.save + ".npz", inputs);
}

// The operator of that name; the error has names that are near it, or all.
Expected<const MetaOperator*> operator_named(const std::string& name, bool gradient) {
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  };
  const std::string asked = lower(name);
  std::string names, near;
  for (const MetaOperator* op : gradient ? all_gradients() : all_operators()) {
    if (op->name == name) return op;
    names += fmt::format(" {}", op->name);
    const std::string there = lower(std::string(op->name));
    if (asked.size() >= 3 && (asked.find(there) != std::string::npos || there.find(asked) != std::string::npos))
      near += fmt::format("{}{}", near.empty() ? "" : " or ", op->name);
  }
  const std::string_view what = gradient ? "gradient of an operator" : "operator";
  if (!near.empty()) return make_error("no {} '{}'; is {} meant?", what, name, near);
  return make_error("no {} '{}'; there are{}", what, name, names);
}

void print_total(const OperatorCheck& total, const MetaOperator& op, DType dtype, const std::string& spec) {
  const std::int64_t judged = std::accumulate(total.rungs.begin(), total.rungs.end(), std::int64_t{0});
  const std::int64_t tried = judged + total.known + total.unsupported + total.errors + total.deaths;
  const bool nothing = judged + total.known + total.errors + total.deaths == 0;
  fmt::print("{}: {} {} on {}: {}",
             nothing                                       ? "NOT RUN"
             : total.deaths                                ? "CRASHED"
             : total.rungs[static_cast<int>(Rung::defect)] ? "DEFECT"
             : total.alarms()                              ? "SUSPECT"
             : total.known                                 ? "KNOWN"
             : total.errors + total.unsupported            ? "CLEAN where it ran"
                                                           : "CLEAN",
             display_name(op), dtype_name(dtype), spec, fmt::format("{} case{}", tried, tried == 1 ? "" : "s"));
  if (total.unsupported) fmt::print(", {} unsupported", total.unsupported);
  if (total.errors) fmt::print(", {} refused by the backend", total.errors);
  if (total.deaths) fmt::print(", {} deaths of the backend", total.deaths);
  fmt::print("\n");
  std::string rungs;
  const auto add = [&](const std::string& text) { rungs += (rungs.empty() ? "" : ", ") + text; };
  for (int r = 0; r < kRungCount; ++r)
    if (const std::int64_t count = total.rungs[static_cast<std::size_t>(r)])
      add(fmt::format("{} {}", count, to_string(static_cast<Rung>(r))));
  if (total.known) add(fmt::format("{} known", total.known));
  if (total.unproven) add(fmt::format("{} unproven outputs", total.unproven));
  if (!rungs.empty()) fmt::print("  {}\n", rungs);
  const auto& honest = total.rungs;
  if (honest[static_cast<int>(Rung::exact)] + honest[static_cast<int>(Rung::rounding)] > 0)
    fmt::print("  of exact and rounding: largest z rms {:.2f}, |z| {:.2f}, error / radius {:.3g}\n", total.z_rms,
               total.z_max, total.excess);
  for (const auto& [what, n] : total.explanations) fmt::print("  {} x {}\n", n, what);
  for (const auto& [what, n] : total.known_reasons) fmt::print("  {} x known: {}\n", n, what);
  // A framework that names the case in its message has as many reasons as there are cases.
  constexpr std::size_t kMostReasons = 5;
  std::size_t shown = 0;
  for (const auto& [what, n] : total.reasons)
    if (shown++ < kMostReasons) fmt::print("  {} x {}\n", n, what);
  if (shown > kMostReasons) fmt::print("  and {} more reasons\n", shown - kMostReasons);
}

Expected<int> check_on(const CheckArguments& a, const MetaOperator& op, DType dtype, const std::string& spec,
                       Backend& backend, std::span<const KnownDivergence> known, const std::atomic<bool>* interrupted) {
  const CheckOptions options{dtype, a.seed, a.only >= 0 ? static_cast<std::uint64_t>(a.only) : 0,
                             a.only >= 0 ? 1 : a.cases, known};
  int shown = 0;
  bool wrong = false;  // a refusal alone is no wrong result
  Expected<void> saved;
  const OperatorCheck total = check_operator(
      op, backend, options,
      [&](const CheckedCase& c) {
        wrong = wrong || (c.known && c.outcome == OutcomeKind::ok);
        const bool bad =
            c.outcome == OutcomeKind::ok ? c.rung >= Rung::unlikely : c.outcome != OutcomeKind::unsupported;
        if (a.only >= 0 && !a.save.empty()) saved = save_case(a, c);
        if (a.details || a.only >= 0 || (bad && shown++ < 10)) print_case(a, dtype, spec, c);
      },
      interrupted);
  OPDIFF_RETURN_IF_ERROR(saved);
  wrong = wrong || total.rungs[static_cast<int>(Rung::defect)] > 0;
  print_total(total, op, dtype, spec);
  if (total.deaths) return kBackendDied;
  if (wrong) return kDefect;
  return total.cases + total.known == 0 ? kCannotRun : kClean;
}

int worse(int a, int b) { return rank(RunStatus(a)) >= rank(RunStatus(b)) ? a : b; }

Expected<int> check(const CheckArguments& a) {
  OPDIFF_TRY(const MetaOperator* const op, operator_named(a.op, a.gradient));
  std::vector<DType> dtypes;
  for (const std::string& text : a.dtypes) {
    const auto dtype = parse_dtype(text);
    if (!dtype) return make_error("--dtype {}: not a dtype (f32, f64, f16, bf16, i32, ...)", text);
    if (!(op->types & type_bit(*dtype))) return make_error("--dtype {}: {} does not take it", text, display_name(*op));
    dtypes.push_back(*dtype);
  }
  std::vector<BackendSpec> specs;
  for (const std::string& text : a.backends) {
    OPDIFF_TRY(const auto listed, parse_spec_list(text));
    specs.insert(specs.end(), listed.begin(), listed.end());
  }
  OpenOptions open;
  open.limits.interrupted = watch_for_interruption();
  int status = kClean;
  for (const BackendSpec& spec : specs) {
    OPDIFF_TRY(const auto backend, open_backend(spec, open));
    OPDIFF_TRY(const auto known, known_divergences(backend->info()));
    for (const DType dtype : dtypes) {
      OPDIFF_TRY(const int found, check_on(a, *op, dtype, to_string(spec), *backend, known, open.limits.interrupted));
      status = worse(status, found);
      if (!open.limits.interrupted->load()) continue;
      fmt::print("interrupted: the figures are of the cases that were run\n");
      return worse(status, kCannotRun);
    }
  }
  return status;
}

}  // namespace

void add_check_command(CLI::App& app, int* status) {
  auto* command = app.add_subcommand("check", "judge one operator on generated cases");
  auto arguments = std::make_shared<CheckArguments>();
  command->add_option("OP", arguments->op, "the operator, by its ONNX name")->required();
  command->add_option("--backend,--backends", arguments->backends,
                      "specs, separated by commas or spaces; default onnxruntime");
  command->add_option("--dtype", arguments->dtypes, "f32 (default), f64, f16, bf16, or integer types; several")
      ->delimiter(',');
  command->add_option("--cases", arguments->cases, "how many; default 100")->check(CLI::Range(1, 1000000000));
  command->add_option("--seed", arguments->seed, "the cases depend on it alone; default 1")->check(whole_number());
  command->add_option("--only", arguments->only, "this one case, with its verdict in full")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  command->add_option("--save", arguments->save, "with --only: write the case to SAVE.onnx and SAVE.npz");
  command->add_flag("--gradient", arguments->gradient, "the operator's gradient instead");
  command->add_flag("--details", arguments->details, "print every case");
  command->footer(
      "Exit status: 0 clean, 1 a defect, 2 nothing could be run, 3 the backend crashed, hung or ran out of memory.\n\n"
      "Examples:\n  opdiff check Conv\n  opdiff check Softmax --backend torch --dtype f32 bf16 --cases 1000\n  opdiff "
      "check AveragePool --backend onnxruntime@1.23.2 --only 17 --save case17");
  command->callback([arguments, status] {
    const Expected<int> ended = check(*arguments);
    *status = ended ? *ended : cannot_run(ended.error());
  });
}

}  // namespace opdiff
