// opdiff check OP: one operator on generated cases, judged.
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/npy.h"
#include "cli/commands.h"
#include "cli/interruption.h"
#include "graph/onnx_writer.h"
#include "graph/text.h"
#include "plan/operator_check.h"
#include "workers/open.h"

namespace opdiff {
namespace {

struct CheckArguments {
  std::string op, dtype = "f32", save;
  std::vector<std::string> backends = {"onnxruntime"};
  int cases = 100, only = -1;
  std::uint64_t seed = 1;
  bool details = false, gradient = false;
};

void print_case(const CheckArguments& a, const std::string& spec, const CheckedCase& c) {
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
             a.gradient ? " --gradient" : "", spec, a.dtype, a.seed, c.index);
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

int check(const CheckArguments& a) {
  const MetaOperator* op = nullptr;
  for (const MetaOperator* known : a.gradient ? all_gradients() : all_operators())
    if (known->name == a.op) op = known;
  if (!op) {
    std::string names;
    for (const MetaOperator* known : a.gradient ? all_gradients() : all_operators())
      names += fmt::format(" {}", known->name);
    return cannot_run(
        {fmt::format("no {} '{}'; there are{}", a.gradient ? "gradient of an operator" : "operator", a.op, names)});
  }
  const auto dtype = parse_dtype(a.dtype);
  if (!dtype) return cannot_run({fmt::format("--dtype {}: not a dtype (f32, f64, f16, bf16, i32, ...)", a.dtype)});
  if (!(op->types & type_bit(*dtype)))
    return cannot_run({fmt::format("--dtype {}: {} does not take it", a.dtype, display_name(*op))});
  OpenOptions open;
  open.limits.interrupted = watch_for_interruption();
  int status = kClean;
  for (const std::string& spec : a.backends) {
    auto backend = open_backend(spec, open);
    if (!backend) return cannot_run(backend.error());
    const auto known = known_divergences((*backend)->info());
    if (!known) return cannot_run(known.error());
    CheckOptions options{*dtype, a.seed, a.only >= 0 ? static_cast<std::uint64_t>(a.only) : 0,
                         a.only >= 0 ? 1 : a.cases, *known};
    int shown = 0;
    bool wrong_but_known = false;  // a refusal alone is no wrong result
    Expected<void> saved;
    const OperatorCheck total = check_operator(
        *op, **backend, options,
        [&](const CheckedCase& c) {
          wrong_but_known = wrong_but_known || (c.known && c.outcome == OutcomeKind::ok);
          const bool bad =
              c.outcome == OutcomeKind::ok ? c.rung >= Rung::unlikely : c.outcome != OutcomeKind::unsupported;
          if (a.only >= 0 && !a.save.empty()) saved = save_case(a, c);
          if (a.details || a.only >= 0 || (bad && shown++ < 10)) print_case(a, spec, c);
        },
        open.limits.interrupted);
    if (!saved) return cannot_run(saved.error());
    fmt::print("{} {} on {}: {} cases", display_name(*op), dtype_name(*dtype), spec, total.cases);
    if (total.unsupported) fmt::print(", {} unsupported", total.unsupported);
    if (total.errors) fmt::print(", {} refused by the backend", total.errors);
    if (total.deaths) fmt::print(", {} deaths of the backend", total.deaths);
    fmt::print("\n ");
    for (int r = 0; r < kRungCount; ++r)
      if (total.rungs[static_cast<std::size_t>(r)])
        fmt::print(" {} {}", total.rungs[static_cast<std::size_t>(r)], to_string(static_cast<Rung>(r)));
    if (total.known) fmt::print(" {} known", total.known);
    if (total.unproven) fmt::print(" ({} unproven)", total.unproven);
    fmt::print("; largest z rms {:.2f}, |z| {:.2f}, error / radius {:.3g}\n", total.z_rms, total.z_max, total.excess);
    for (const auto& [what, n] : total.explanations) fmt::print("  {} x {}\n", n, what);
    for (const auto& [what, n] : total.known_reasons) fmt::print("  {} x known: {}\n", n, what);
    for (const auto& [what, n] : total.reasons) fmt::print("  {} x {}\n", n, what);
    if (total.deaths)
      status = kBackendDied;
    else if ((total.rungs[static_cast<int>(Rung::defect)] || wrong_but_known) && status == kClean)
      status = kDefect;
    if (open.limits.interrupted->load()) {
      fmt::print("interrupted: the figures are of the cases that were run\n");
      return std::max(status, kCannotRun);
    }
  }
  return status;
}

}  // namespace

void add_check_command(CLI::App& app, int* status) {
  auto* command = app.add_subcommand("check", "judge one operator on generated cases");
  auto arguments = std::make_shared<CheckArguments>();
  command->add_option("OP", arguments->op, "the operator, by its ONNX name")->required();
  command->add_option("--backend,--backends", arguments->backends, "backend specs (repeatable); default onnxruntime");
  command->add_option("--dtype", arguments->dtype, "f32 (default), f64, f16, bf16, or an integer type");
  command->add_option("--cases", arguments->cases, "how many; default 100")->check(CLI::PositiveNumber);
  command->add_option("--seed", arguments->seed, "the cases depend on it alone; default 1")->check(whole_number());
  command->add_option("--only", arguments->only, "this one case, with its verdict in full")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  command->add_option("--save", arguments->save, "with --only: write the case to SAVE.onnx and SAVE.npz");
  command->add_flag("--gradient", arguments->gradient, "the operator's gradient instead");
  command->add_flag("--details", arguments->details, "print every case");
  command->footer(
      "Examples:\n  opdiff check Conv\n  opdiff check Softmax --backend torch --dtype bf16 --cases 1000\n  opdiff "
      "check AveragePool --backend onnxruntime@1.23.2 --only 17 --save case17");
  command->callback([arguments, status] { *status = check(*arguments); });
}

}  // namespace opdiff
