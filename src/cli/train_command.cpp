// opdiff train: a recipe followed over an assignment of operators to backends, each step proven on request.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/interruption.h"
#include "cli/progress_line.h"
#include "report/out_folder.h"
#include "train/curve_noise.h"
#include "train/trainer.h"
#include "workers/open.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string recipe, backend, out, data, check, fallback;
  std::vector<std::string> bindings, plot_with;
  std::int64_t epochs = 0, steps = 0;
  double time_limit = 300;
  int threads = 0, noise = 0;
  bool resume = false, free = false, quiet = false, details = false;
};

Expected<void> parse_check(const std::string& text, TrainOptions* options) {
  if (text.empty()) return {};
  if (text == "every") {
    options->check_every = 1;
    return {};
  }
  if (text == "last") {
    options->check_last = true;
    return {};
  }
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, options->check_every);
  if (error != std::errc() || stop != end || options->check_every < 1)
    return make_error("--check {}: expected every, last, or a number N: each N-th step", text);
  return {};
}

// Backends by spec, each opened when first asked for and then kept.
class Backends {
 public:
  explicit Backends(OpenOptions options) : options_(std::move(options)) {}
  BackendSource source(const std::string& spec, bool alone) {
    return [this, spec, alone]() -> Expected<Backend*> {
      auto& opened = opened_[spec];
      if (!opened) {
        OpenOptions options = options_;
        options.alone = alone;
        auto backend = open_backend(spec, options);
        if (!backend) return tl::unexpected<Error>(backend.error());
        opened = *std::move(backend);
      }
      return opened.get();
    };
  }

 private:
  const OpenOptions options_;
  std::map<std::string, std::unique_ptr<Backend>> opened_;
};

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.2f} %", 100 * *share) : std::string();
}

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

void print_checks(const Arguments& arguments, const TrainResult& result) {
  if (result.checked.empty() || result.lockstep.empty()) return;
  std::vector<const CheckedNode*> rows;
  std::array<std::int64_t, kRungCount> total{};
  std::int64_t judged = 0, known = 0, alone = 0;
  for (const CheckedNode& node : result.checked) {
    rows.push_back(&node);
    judged += node.steps;
    known += node.known;
    alone += node.failure.empty() ? 0 : 1;
    for (std::size_t r = 0; r < total.size(); ++r) total[r] += node.rungs[r];
  }
  std::stable_sort(rows.begin(), rows.end(), [](const CheckedNode* a, const CheckedNode* b) {
    return std::pair(a->is_defect(), a->worst.rung) > std::pair(b->is_defect(), b->worst.rung);
  });
  std::string counts;
  for (std::size_t r = 0; r < total.size(); ++r)
    if (total[r] > 0)
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", total[r], to_string(static_cast<Rung>(r)));
  fmt::print("\nproven: {} nodes judged in {} step{}: {}{}\n", judged, result.lockstep.size(),
             result.lockstep.size() == 1 ? "" : "s", counts, known > 0 ? fmt::format(", {} known", known) : "");
  const std::size_t shown = arguments.details ? rows.size() : 12;
  std::size_t printed = 0;
  for (const CheckedNode* node : rows) {
    if (printed == shown || (!arguments.details && node->worst.rung <= Rung::rounding && node->failure.empty()))
      continue;
    ++printed;
    std::string line = fmt::format("  {:<34} {:<22} {:<12} {:<13}", node->id, node->op, node->backend,
                                   node->steps == 0 ? "not judged" : to_string(node->worst.rung));
    if (!node->failure.empty())
      line += fmt::format(" not alone: {}", node->failure.substr(0, 80));
    else if (node->worst.rung > Rung::rounding)
      line += fmt::format(" step {}, {}[{}]: got {:.9g}, right {:.9g} +- {:.3g} {}", node->worst_step, node->output,
                          fmt::join(node->worst.worst.coordinates, ","), node->worst.worst.got,
                          node->worst.worst.centre, node->worst.worst.radius, node->worst.explanation);
    fmt::print("{}\n", line);
  }
  if (alone > 0) fmt::print("  {} nodes are not computed alone by their backend and were not judged\n", alone);
  const auto worst = std::max_element(result.lockstep.begin(), result.lockstep.end(),
                                      [](const auto& a, const auto& b) { return a.difference < b.difference; });
  if (worst == result.lockstep.end()) return;
  fmt::print("lockstep: against the reference from the same state, one step differs by {:.3g} at most (step {}, {})",
             worst->difference, worst->step, worst->tensor.empty() ? "nothing" : worst->tensor);
  const LockstepPoint& first = result.lockstep.front();
  if (first.reading >= 0)
    fmt::print("; at step {} that is {:.3g} noise floors of {}", first.step, first.reading, first.tensor);
  fmt::print("\n");
}

void print_drift(const TrainResult& result) {
  if (result.drift.empty()) return;
  const auto worst = std::max_element(result.drift.begin(), result.drift.end(),
                                      [](const auto& a, const auto& b) { return a.drift < b.drift; });
  fmt::print(
      "free-running: {} steps beside {} noisy trainings of the reference: {:.3g} times their noise at most (step {}, "
      "{}), limit {}\n",
      result.drift.size(), kNoisyTrainings, worst->drift, worst->step, worst->tensor, kDriftLimit);
  if (!result.left) return;
  std::string wrong;
  for (const CheckedNode& node : result.checked_where_left)
    if (node.worst.suspicious() || node.is_defect())
      wrong += fmt::format("{}{} ({}) on {}: {}", wrong.empty() ? "" : ", ", node.id, node.op, node.backend,
                           to_string(node.worst.rung));
  fmt::print("  left their noise at step {} ({}, {:.3g}); wrong there, alone: {}\n", result.left->step,
             result.left->tensor, result.left->drift, wrong.empty() ? "nothing" : wrong);
}

std::string drift_csv(const std::vector<DriftPoint>& points) {
  std::string text = "step,loss,reference_loss,drift,tensor\n";
  for (const DriftPoint& p : points)
    text += fmt::format("{},{},{},{},{}\n", p.step, p.loss, p.reference_loss, p.drift, p.tensor);
  return text;
}

std::string lockstep_csv(const std::vector<LockstepPoint>& points) {
  std::string text = "step,loss,reference_loss,difference,tensor\n";
  for (const LockstepPoint& p : points)
    text += fmt::format("{},{},{},{},{}\n", p.step, p.loss, p.reference_loss, p.difference, p.tensor);
  return text;
}

// A table of steps whose first column is the step, after the rows that a run which this one resumes left there.
Expected<void> write_steps(const fs::path& path, bool resumes, std::int64_t first, const std::string& csv) {
  const std::size_t header = csv.find('\n') + 1;
  std::string text = csv.substr(0, header);
  if (resumes && fs::exists(path)) {
    OPDIFF_TRY(const std::string before, read_file(path, std::uint64_t{1} << 30));
    std::istringstream lines(before);
    for (std::string line; std::getline(lines, line);)
      if (const std::int64_t step = std::atoll(line.c_str()); step > 0 && step < first) text += line + "\n";
  }
  return write_file_atomically(path, text + csv.substr(header));
}

// Other runs, by the names of their folders.
Expected<std::vector<PlottedRun>> other_runs(const Arguments& arguments) {
  std::vector<PlottedRun> runs;
  for (const std::string& other : arguments.plot_with) {
    OPDIFF_TRY(Curves read, read_curves_csv(other));
    runs.push_back({fs::absolute(other).parent_path().filename().string(), std::move(read)});
  }
  return runs;
}

// Progress on a terminal, a line an epoch.
void show_progress(TrainOptions& options, ProgressLine& line, bool quiet, const std::string& label) {
  struct Pace {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now(), shown = start;
    std::int64_t first_step = -1;
  };
  options.on_step = [&line, label, pace = std::make_shared<Pace>()](const TrainOptions::StepReport& report) {
    const auto now = std::chrono::steady_clock::now();
    if (pace->first_step < 0) pace->first_step = report.step;
    if (now - pace->shown < std::chrono::milliseconds(100) && report.step < report.steps) return;
    pace->shown = now;
    const double seconds = std::chrono::duration<double>(now - pace->start).count();
    const double each = seconds / static_cast<double>(report.step - pace->first_step + 1);
    line.show(fmt::format("{}epoch {} loss {:.4f} {} {:.1f} steps/s, {} left", label, report.epoch + 1, report.loss,
                          percent(report.accuracy), 1 / each,
                          duration(each * static_cast<double>(report.steps - report.step))),
              report.step, report.steps);
  };
  options.on_epoch = [&line, quiet, label](const TrainOptions::EpochReport& report) {
    line.clear();
    if (quiet) return;
    std::string text = fmt::format("{}epoch {}/{}: loss {:.4f}", label, report.epoch, report.epochs, report.loss);
    if (report.accuracy) text += fmt::format(", training accuracy {}", percent(report.accuracy));
    if (report.test) {
      text += fmt::format(", test loss {:.4f}", report.test->loss);
      if (report.test->right >= 0)
        text += fmt::format(", test accuracy {:.2f} % ({} of {})",
                            100.0 * static_cast<double>(report.test->right) / static_cast<double>(report.test->rows),
                            report.test->right, report.test->rows);
    }
    fmt::print("{}, {:.1f} s\n", text, report.seconds);
    std::fflush(stdout);
  };
}

// The same training again and again from parameters off by a rounding, each in a folder of its own inside the run's.
// The error is that of the first that cannot start; `last` says how the last one ended.
Expected<std::vector<PlottedRun>> train_noisy(const Arguments& arguments, const Recipe& recipe, TrainOptions options,
                                              ProgressLine& line, TrainResult* last) {
  options.check_every = 0;
  options.check_last = options.free = false;
  std::vector<PlottedRun> runs;
  for (int k = 1; k <= arguments.noise; ++k) {
    Recipe again = recipe;
    again.out = recipe.out / fmt::format("noise-{}", k);
    OPDIFF_TRY(const OutFolder held, OutFolder::claim(again.out));
    options.resume = arguments.resume && fs::exists(again.out / "checkpoint.json");
    options.noise = static_cast<std::uint64_t>(k);
    show_progress(options, line, arguments.quiet, fmt::format("noise {}/{}: ", k, arguments.noise));
    OPDIFF_TRY(*last, train(again, options));
    line.clear();
    if (last->end != TrainEnd::finished) {
      fmt::print(stderr, "opdiff: noise {}: {}; go on with --resume ({})\n", k,
                 last->reason.empty() ? "interrupted" : escape_controls(last->reason), recipe.out.string());
      break;
    }
    runs.push_back({"off by a rounding", std::move(last->curves), true});
  }
  return runs;
}

void print_noise(const Curves& base, const std::vector<PlottedRun>& noisy, const std::vector<PlottedRun>& others) {
  std::vector<Curves> curves;
  for (const PlottedRun& run : noisy) curves.push_back(run.curves);
  for (const PlottedRun& other : others) {
    const auto reading = read_curves(other.curves, base, curves);
    if (!reading)
      fmt::print("{}: {}\n", other.name, reading.error().message);
    else
      fmt::print("{}: {} the noise of {} trainings off by a rounding: {:.3g} times it at most ({}; one epoch {:.3g})\n",
                 other.name, reading->inside ? "inside" : "outside", curves.size(), reading->rms, reading->worst,
                 reading->max);
  }
}

Expected<int> run_training(const Arguments& arguments) {
  OPDIFF_TRY(Recipe recipe, read_recipe(arguments.recipe, arguments.data));
  if (!arguments.backend.empty()) recipe.backend = arguments.backend;
  for (const std::string& text : arguments.bindings) {
    auto binding = parse_binding(text);
    if (!binding) return with_context("--bind", binding.error());
    recipe.bindings.push_back(*std::move(binding));
  }
  if (!arguments.out.empty()) recipe.out = arguments.out;
  if (arguments.epochs > 0) recipe.epochs = arguments.epochs;
  OPDIFF_TRY(const std::vector<PlottedRun> others, other_runs(arguments));  // before hours of work
  if (arguments.noise > 0 && !recipe.test)
    return make_error("--noise {}: the recipe has no test data, by which curves are compared", arguments.noise);
  OPDIFF_TRY(const OutFolder held, OutFolder::claim(recipe.out));
  std::error_code ignored;
  if (!arguments.resume && fs::exists(recipe.out / "checkpoint.json", ignored))
    return make_error(
        "{}: has a checkpoint of another training; go on with --resume, or name another folder with --out",
        recipe.out.string());

  OpenOptions open;
  open.threads = arguments.threads;
  open.over_and_over = true;
  keep_freed_memory();
  open.limits.prepare_seconds = open.limits.run_seconds = arguments.time_limit;
  open.limits.interrupted = watch_for_interruption();
  Backends backends(open);

  ProgressLine line(!arguments.quiet && isatty(STDERR_FILENO) != 0);
  TrainOptions options;
  OPDIFF_RETURN_IF_ERROR(parse_check(arguments.check, &options));
  if (arguments.steps > 0) options.steps = arguments.steps;
  options.resume = arguments.resume;
  options.free = arguments.free;
  options.fallback = !arguments.fallback.empty();
  options.threads = arguments.threads > 0 ? arguments.threads : static_cast<int>(std::thread::hardware_concurrency());
  options.open = [&](const std::string& spec, bool alone) { return backends.source(spec, alone); };
  options.interrupted = open.limits.interrupted;
  show_progress(options, line, arguments.quiet, "");
  options.on_note = [&](const std::string& text) {
    line.clear();
    fmt::print(stderr, "opdiff: {}\n", escape_controls(text));
  };

  OPDIFF_TRY(const TrainResult result, train(recipe, options));
  line.clear();
  std::string used;
  for (std::size_t k = 0; k < result.specs.size(); ++k)
    if (result.nodes_of[k] > 0)
      used += fmt::format("{}{} {}", used.empty() ? "" : ", ", result.nodes_of[k], result.specs[k]);
  if (!result.fallen_back.empty()) fmt::print("fell back to the reference: {}\n", fmt::join(result.fallen_back, " "));
  print_checks(arguments, result);
  print_drift(result);
  if (!arguments.quiet && result.steps_run > 0)
    fmt::print("{} steps done; nodes: {}; {} segment{}, {:.2f} ms a step{}\n", result.step, used, result.segments,
               result.segments == 1 ? "" : "s", 1e3 * result.step_seconds / static_cast<double>(result.steps_run),
               result.deaths > 0 ? fmt::format("; {} deaths of backends", result.deaths) : "");
  std::fflush(stdout);
  if (!result.lockstep.empty())
    OPDIFF_RETURN_IF_ERROR(write_steps(recipe.out / "lockstep.csv", arguments.resume, result.lockstep.front().step,
                                       lockstep_csv(result.lockstep)));
  if (!result.drift.empty())
    OPDIFF_RETURN_IF_ERROR(
        write_steps(recipe.out / "drift.csv", arguments.resume, result.drift.front().step, drift_csv(result.drift)));
  const std::string kept = result.step > 0 ? fmt::format("; go on with --resume ({})", recipe.out.string()) : "";
  switch (result.end) {
    case TrainEnd::finished: break;
    case TrainEnd::interrupted:
      if (!result.has_defect()) return make_error("interrupted after step {}{}", result.step, kept);
      fmt::print(stderr, "opdiff: interrupted after step {}{}\n", result.step, kept);
      return kDefect;
    case TrainEnd::died:
      fmt::print(stderr, "opdiff: {}{}\n", escape_controls(result.reason), kept);
      return kBackendDied;
    case TrainEnd::not_finite:
    case TrainEnd::failed:
      fmt::print(stderr, "opdiff: {}{}\n", escape_controls(result.reason), result.end == TrainEnd::failed ? kept : "");
      return result.has_defect() ? kDefect : kCannotRun;
  }
  std::vector<PlottedRun> runs;
  if (arguments.noise > 0) {
    TrainResult last;
    auto noisy = train_noisy(arguments, recipe, options, line, &last);
    if (!noisy) return with_context("--noise", noisy.error());
    if (last.end != TrainEnd::finished)
      return result.has_defect() ? kDefect : last.end == TrainEnd::died ? kBackendDied : kCannotRun;
    print_noise(result.curves, *noisy, others);
    runs = *std::move(noisy);
  }
  runs.push_back({recipe.out.filename().string(), result.curves});
  runs.insert(runs.end(), others.begin(), others.end());
  const auto plotted = plot_curves(std::move(runs), recipe.out / "curves.svg");
  if (!plotted) fmt::print(stderr, "opdiff: {}\n", plotted.error().message);
  if (!arguments.quiet)
    fmt::print("{}: trained.onnx, curves.csv{}, checkpoint\n", recipe.out.string(), plotted ? ", curves.svg" : "");
  return result.has_defect() ? kDefect : kClean;
}

}  // namespace

void add_train_command(CLI::App& app, int* status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model, each operator on the backend of your choice");
  command->add_option("recipe", arguments->recipe, "the TOML file (docs/formats/recipe.md)")->required();
  command->add_option("--backend", arguments->backend,
                      "of all nodes that nothing else is said of; default: the recipe's");
  command->add_option("--bind", arguments->bindings,
                      "WHAT=BACKEND: an operator (Conv, Adam), a node (fc3), or a pattern ('conv*', '*/update'); a "
                      "backward\nnode goes with its forward node unless named ('Conv/gradient'); may be repeated");
  command->add_option("--out", arguments->out,
                      "folder of checkpoints, curves and the trained model; default: the recipe's");
  command->add_option("--data", arguments->data, "folder of the data, instead of the recipe's");
  command->add_option("--epochs", arguments->epochs, "instead of the recipe's")->check(CLI::Range(1, 1000000));
  command->add_option("--steps", arguments->steps, "at most so many steps")->check(CLI::Range(1, 1000000000));
  command->add_flag("--resume", arguments->resume, "go on from the checkpoint in --out");
  command->add_option("--check", arguments->check,
                      "every, last or N (the first step and each N-th after it): judge every forward, backward and "
                      "update node of the step\n"
                      "on its own backend, and the whole step against the reference from the same state");
  command->add_flag(
      "--free", arguments->free,
      "beside the training, the reference's own and four with rounding noise in every node: drift.csv, the "
      "first\nstep that leaves their noise, and what was wrong there (slow)");
  command->add_option("--fallback", arguments->fallback, "reference: it takes the nodes that a backend refuses")
      ->check(CLI::IsMember({"reference"}));
  command
      ->add_option("--noise", arguments->noise,
                   "so many more trainings from parameters off by a rounding: how far the curves of equally right "
                   "trainings\npart, in the plot; runs of --plot-with are held against it")
      ->check(CLI::Range(2, 100));
  command->add_option("--plot-with", arguments->plot_with,
                      "curves.csv of another run, into the same plot; may be repeated");
  command->add_option("--time-limit", arguments->time_limit, "seconds for one request to a backend")
      ->check(number_in(0.001, 1e9))
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "of each backend and of the judge; default: all")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--details", arguments->details, "with --check: every node");
  command->add_flag("--quiet", arguments->quiet, "no progress, no epochs");
  command->footer(
      "Exit status: 0 trained, 1 --check found a defect, 2 cannot run or stopped (a bad recipe, a NaN, Ctrl-C; 1 "
      "outranks it), 3 a "
      "backend\ncrashed, hung or ran out of memory. A checkpoint is kept in each case.\n\n"
      "Examples:\n"
      "  opdiff train examples/lenet5/lenet5.toml --backend torch\n"
      "  opdiff train examples/lenet5/lenet5.toml --bind Conv=onednn --bind Gemm=torch --bind fc3=reference\n"
      "  opdiff train examples/lenet5/lenet5.toml --backend torch --steps 20 --check every --out result/checked\n"
      "  opdiff train examples/lenet5/lenet5.toml --out result/again --plot-with result/checked/curves.csv");
  command->callback([arguments, status] {
    const Expected<int> ended = run_training(*arguments);
    *status = ended ? *ended : cannot_run(ended.error());
  });
}

}  // namespace opdiff
