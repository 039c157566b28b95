// opdiff infer: what a classifier says of a picture on several backends, and how much of it arithmetic can move.
#include <algorithm>

#include "base/npy.h"
#include "cli/commands.h"
#include "cli/interruption.h"
#include "graph/onnx_reader.h"
#include "graph/validate.h"
#include "plan/inputs.h"
#include "reference/evaluate.h"
#include "train/data.h"
#include "train/image_file.h"
#include "train/inference.h"
#include "workers/open.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model, input, recipe;
  std::vector<std::string> backends;
  std::vector<double> mean, deviation;
  std::uint64_t seed = 0;
  std::int64_t rows = 3;
  std::int64_t top = 3;
  double time_limit = 300;
};

struct Loaded {
  Graph graph;
  TypeMap types;
  TensorMap inputs;
  std::vector<std::int64_t> labels;
};

Expected<Tensor> read_picture(const Arguments& arguments, const Graph& graph) {
  if (graph.inputs.size() != 1)
    return make_error("{}: has {} inputs; a picture can be only one", arguments.model, graph.inputs.size());
  const auto& shape = graph.inputs[0].shape;
  if (!shape || shape->size() != 4 || !(*shape)[1].value || !(*shape)[2].value || !(*shape)[3].value ||
      graph.inputs[0].dtype != DType::f32)
    return make_error("{}: input '{}' is not float [batch, channels, height, width]", arguments.model,
                      graph.inputs[0].name);
  const Shape sample = {*(*shape)[1].value, *(*shape)[2].value, *(*shape)[3].value};
  if (sample[0] != 1 && sample[0] != 3)
    return make_error("{}: input '{}' has {} channels; pictures have 1 or 3", arguments.model, graph.inputs[0].name,
                      sample[0]);
  OPDIFF_TRY(const Tensor picture, read_png(arguments.input, static_cast<int>(sample[0])));
  Transform transform;
  if (!arguments.recipe.empty()) {
    OPDIFF_TRY(const Recipe recipe, read_recipe(arguments.recipe));
    transform = recipe.transform;
  }
  transform.flip = 0;
  if (!arguments.mean.empty()) transform.mean = arguments.mean;
  if (!arguments.deviation.empty()) transform.deviation = arguments.deviation;
  if (!transform.resize && picture.shape() != sample) transform.resize = {sample[1], sample[2]};
  const auto made = Preprocessing::make(transform, picture.shape(), sample);
  if (!made) return with_context(arguments.input, made.error());
  const std::int64_t row[] = {0};
  Shape one = picture.shape();
  one.insert(one.begin(), 1);
  return made->batch(picture.reshaped(one), row);
}

Expected<Loaded> load(const Arguments& arguments) {
  Loaded loaded;
  OPDIFF_TRY(loaded.graph, read_onnx(arguments.model));
  if (const auto valid = validate(loaded.graph); !valid) return with_context(arguments.model, valid.error());
  if (fs::path(arguments.input).extension() == ".npz") {
    OPDIFF_TRY(TensorMap given, read_npz(arguments.input));
    OPDIFF_TRY(SplitInputs split, split_inputs(loaded.graph, std::move(given), arguments.input));
    loaded.inputs = std::move(split.inputs);
    for (const char* name : {"label", "labels"})
      if (const auto found = split.extra.find(name); found != split.extra.end() && is_integer(found->second.dtype()))
        loaded.labels = found->second.to_int64s();
  } else if (fs::path(arguments.input).extension() == ".npy") {
    if (loaded.graph.inputs.size() != 1)
      return make_error("{}: has {} inputs; an .npy holds one, an .npz all by name", arguments.model,
                        loaded.graph.inputs.size());
    OPDIFF_TRY(loaded.inputs[loaded.graph.inputs[0].name], read_npy(arguments.input));
  } else {
    OPDIFF_TRY(Tensor picture, read_picture(arguments, loaded.graph));
    loaded.inputs[loaded.graph.inputs[0].name] = std::move(picture);
  }
  if (const auto bound = bind_dimensions(loaded.graph, {}, loaded.inputs); !bound)
    return with_context(arguments.model, bound.error());
  const auto inputs = input_types(loaded.graph);
  if (!inputs) return with_context(arguments.model, inputs.error());
  auto types = infer_types(loaded.graph, *inputs);
  if (!types) return with_context(arguments.model, types.error());
  loaded.types = *std::move(types);
  return loaded;
}

std::int64_t winner(const std::vector<double>& values, std::int64_t row, std::int64_t classes) {
  const auto first = values.begin() + row * classes;
  return std::max_element(first, first + classes) - first;
}

Expected<int> run_inference(const Arguments& arguments) {
  OPDIFF_TRY(const Loaded loaded, load(arguments));
  const auto made = Classifier::make(loaded.graph, loaded.types);
  if (!made) return with_context(arguments.model, made.error());
  const Classifier& classifier = *made;
  OPDIFF_TRY(const Inference inference, classifier.reference(loaded.inputs, arguments.seed));
  OpenOptions open;
  open.limits.prepare_seconds = open.limits.run_seconds = arguments.time_limit;
  open.limits.interrupted = watch_for_interruption();

  std::vector<std::pair<std::string, std::vector<double>>> others;
  int status = kClean;
  std::string failures;
  for (const std::string& text : arguments.backends) {
    OPDIFF_TRY(const auto specs, parse_spec_list(text));
    for (const BackendSpec& spec : specs) {
      OPDIFF_TRY(const auto backend, open_backend(spec, open));
      const Outcome outcome = run_once(*backend, classifier.model(), loaded.inputs);
      if (open.limits.interrupted->load()) return make_error("interrupted");
      auto values = outcome.ok() ? classifier.probabilities(outcome)
                                 : Expected<std::vector<double>>(tl::unexpected<Error>(
                                       Error{fmt::format("{}: {}", to_string(outcome.kind), outcome.reason)}));
      if (values && static_cast<std::int64_t>(values->size()) != inference.rows * inference.classes)
        values = make_error("{} values, not {}", values->size(), inference.rows * inference.classes);
      if (!values) {
        failures += fmt::format("{}: {}\n", to_string(spec), escape_controls(values.error().message));
        const bool died = outcome.kind == OutcomeKind::crash || outcome.kind == OutcomeKind::timeout ||
                          outcome.kind == OutcomeKind::out_of_memory;
        status = std::max(status, died ? kBackendDied : kCannotRun);
        continue;
      }
      others.emplace_back(to_string(spec), *std::move(values));
    }
  }

  const std::int64_t classes = inference.classes;
  const auto width = [](const std::string& spec) { return std::max<std::size_t>(14, spec.size()); };
  for (std::int64_t row = 0; row < std::min(arguments.rows, inference.rows); ++row) {
    const auto start = static_cast<std::size_t>(row * classes);
    std::vector<std::size_t> order;
    for (std::size_t k = 0; k < static_cast<std::size_t>(classes); ++k) order.push_back(k);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return inference.reference.value[start + a] > inference.reference.value[start + b];
    });
    fmt::print("row {}: class {}", row, order[0]);
    if (row < static_cast<std::int64_t>(loaded.labels.size()))
      fmt::print(" (label {})", loaded.labels[static_cast<std::size_t>(row)]);
    const double margin = inference.margin[static_cast<std::size_t>(row)],
                 movement = inference.movement[static_cast<std::size_t>(row)];
    fmt::print(", margin {:.6g}; arithmetic moves it by {:.2g} at most: {}\n", margin, movement,
               margin > movement ? "decided" : "a matter of rounding");
    fmt::print("  {:>6} {:>13} {:>28}", "class", "reference", "honest arithmetic");
    for (const auto& [spec, values] : others) fmt::print(" {:>{}}", spec, width(spec));
    fmt::print("\n");
    for (std::size_t k = 0; k < std::min(static_cast<std::size_t>(arguments.top), order.size()); ++k) {
      const std::size_t at = start + order[k];
      fmt::print("  {:>6} {:>13.7g} {:>28}", order[k], inference.reference.value[at],
                 fmt::format("[{:.7g}, {:.7g}]", inference.reference.low[at], inference.reference.high[at]));
      for (const auto& [spec, values] : others) {
        const bool inside = values[at] >= inference.reference.low[at] && values[at] <= inference.reference.high[at];
        fmt::print(" {:>{}.7g}{}", values[at], width(spec) - 1, inside ? " " : "!");
      }
      fmt::print("\n");
    }
  }
  for (const auto& [spec, values] : others) {
    std::int64_t outside = 0, flips = 0, decided = 0, right = 0;
    for (std::int64_t row = 0; row < inference.rows; ++row) {
      const auto place = static_cast<std::size_t>(row);
      const std::int64_t own = winner(values, row, classes);
      if (own != winner(inference.reference.value, row, classes)) {
        ++flips;
        decided += inference.margin[place] > inference.movement[place] ? 1 : 0;
      }
      if (place < loaded.labels.size() && own == loaded.labels[place]) ++right;
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      outside += values[i] >= inference.reference.low[i] && values[i] <= inference.reference.high[i] ? 0 : 1;
    fmt::print("{}: {} of {} rows as the reference", spec, inference.rows - flips, inference.rows);
    if (!loaded.labels.empty()) fmt::print(", {} of {} right", right, inference.rows);
    fmt::print(", {} of {} probabilities outside honest arithmetic", outside, values.size());
    if (flips > 0) fmt::print("; {} of the other rows are not a matter of rounding", decided);
    fmt::print("\n");
    if (outside > 0)
      fmt::print("  which operator does it: opdiff compare {} --backends {}{}\n", arguments.model, spec,
                 fs::path(arguments.input).extension() == ".npz" ? " --inputs " + arguments.input : "");
  }
  std::fflush(stdout);
  if (!failures.empty()) fmt::print(stderr, "opdiff: {}", failures);
  return status;
}

}  // namespace

void add_infer_command(CLI::App& app, int* status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("infer", "Class probabilities of a picture, with what arithmetic can move");
  command->add_option("model", arguments->model, "the ONNX file: one output, [rows, classes]")->required();
  command
      ->add_option("input", arguments->input,
                   "a PNG picture, the only input (.npy), or inputs by name (.npz; an array `label` is compared)")
      ->required();
  command->add_option("--backends", arguments->backends, "specs, separated by commas; may be repeated");
  command->add_option("--recipe", arguments->recipe, "whose [transform] a picture goes through");
  command->add_option("--mean", arguments->mean, "subtracted from a picture's values in [0, 1]; one, or one a channel")
      ->delimiter(',');
  command->add_option("--deviation", arguments->deviation, "divides them then")->delimiter(',');
  command->add_option("--rows", arguments->rows, "how many are shown")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command->add_option("--top", arguments->top, "classes shown of each")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "of the noise floor")->check(whole_number())->capture_default_str();
  command->add_option("--time-limit", arguments->time_limit, "seconds for one request to a backend")
      ->check(number_in(0.001, 1e9))
      ->capture_default_str();
  command->footer(
      "The interval is ten noise floors around the reference: what random rounding errors of every node do to this "
      "model\non this input. `!` marks what lies outside.\n\n"
      "Examples:\n"
      "  opdiff infer examples/lenet5/lenet5.onnx digits.npz --backends torch,onednn\n"
      "  opdiff infer lenet5.run/trained.onnx seven.png --recipe examples/lenet5/lenet5.toml --backends torch");
  command->callback([arguments, status] {
    const Expected<int> ended = run_inference(*arguments);
    *status = ended ? *ended : cannot_run(ended.error());
  });
}

}  // namespace opdiff
