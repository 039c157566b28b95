// opdiff compare: the whole model and every node of it on several backends, the wrong operator by name, with proof.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/npy.h"
#include "base/sha256.h"
#include "cli/commands.h"
#include "cli/interruption.h"
#include "cli/progress_line.h"
#include "graph/onnx_reader.h"
#include "graph/validate.h"
#include "plan/inputs.h"
#include "report/console.h"
#include "report/out_folder.h"
#include "train/step.h"
#include "workers/open.h"

namespace opdiff {
namespace {

struct Arguments {
  std::string model;
  std::vector<std::string> backends;
  std::string inputs;
  std::string out;
  std::vector<std::string> dims;
  std::vector<std::string> bindings;
  std::string fail_on;
  std::vector<std::string> accept;
  std::optional<double> rtol, atol;
  double time_limit = 300;
  std::string memory_limit;
  std::uint64_t seed = 0;
  int threads = 0;
  std::string mode = "forward", loss, optimiser = "sgd:lr=0.01,momentum=0.9";
  int localise = CompareOptions().localise;
  bool profile = false, details = false, quiet = false, json = false;
};

// All workers start at once, so that the frameworks' imports overlap.
class Opening {
 public:
  Opening(const BackendSpec& spec, const OpenOptions& options)
      : spec_(spec),
        options_(options),
        opened_(std::async(std::launch::async, [spec, options] { return open_backend(spec, options); })) {}

  Expected<Backend*> get() {
    if (opened_.valid()) backend_ = opened_.get();
    if (!*backend_) return tl::unexpected<Error>(backend_->error());
    return (*backend_)->get();
  }

  Expected<std::unique_ptr<Backend>> without(const std::vector<std::string>& passes) const {
    OPDIFF_TRY(const BackendSpec variant, without_passes(spec_, passes));
    return open_backend(variant, options_);
  }

 private:
  const BackendSpec spec_;
  const OpenOptions options_;
  std::future<Expected<std::unique_ptr<Backend>>> opened_;
  std::optional<Expected<std::unique_ptr<Backend>>> backend_;
};

Expected<std::pair<std::string, std::string>> parse_pair(const std::string& text, std::string_view option,
                                                         std::string_view form) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return make_error("{} {}: expected {}", option, text, form);
  }
  return std::pair{text.substr(0, at), text.substr(at + 1)};
}

Expected<std::int64_t> parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit.empty() || unit == "B" ? 1
                       : unit == "K"               ? 0x1p10
                       : unit == "M"               ? 0x1p20
                       : unit == "G"               ? 0x1p30
                                                   : 0;
  if (end == text.c_str() || scale == 0 || !(number > 0) || number * scale > 0x1p60) {
    return make_error("--memory-limit {}: expected a number of bytes, such as 800M or 4G", text);
  }
  return static_cast<std::int64_t>(number * scale);
}

Expected<Policy> parse_policy(const Arguments& arguments) {
  std::vector<std::string> names;
  for (int rung = 0; rung < kRungCount; ++rung) names.emplace_back(to_string(static_cast<Rung>(rung)));
  Policy policy;
  if (!arguments.fail_on.empty()) {
    policy.fail_on = parse_rung(arguments.fail_on);
    if (!policy.fail_on)
      return make_error("--fail-on {}: no such rung; one of: {}", arguments.fail_on, fmt::join(names, " "));
  }
  for (const std::string& text : arguments.accept) {
    if (text == "known") {
      policy.accept_known = true;
      continue;
    }
    OPDIFF_TRY(const auto pair, parse_pair(text, "--accept", "RUNG=NAME, such as precision=bf16, or known"));
    const std::optional<Rung> rung = parse_rung(pair.first);
    if (!rung) return make_error("--accept {}: no rung '{}'; one of: {}", text, pair.first, fmt::join(names, " "));
    if (!policy.fail_on) return make_error("--accept {}: has no effect without --fail-on {}", text, pair.first);
    if (*rung < *policy.fail_on)
      return make_error("--accept {}: has no effect: --fail-on {} lets it pass", text, arguments.fail_on);
    policy.accept.emplace_back(*rung, pair.second);
  }
  return policy;
}

struct Model {
  Graph graph;
  TensorMap inputs;
  TensorMap extra;
  std::map<std::string, std::int64_t> dimensions;
  std::string sha256;
  std::optional<Training> training;
};

// Of what is known before the run. A tensor that depends on data may still be too large.
Expected<void> check_sizes(const std::string& file, const std::map<std::string, TensorType>& types) {
  for (const auto& [name, type] : types) {
    if (!type.shape) continue;
    const auto count = checked_element_count(*type.shape);
    const auto fits = count ? check_fits_in_memory(static_cast<std::uint64_t>(*count) * dtype_size(type.dtype))
                            : tl::unexpected<Error>(count.error());
    if (!fits) return make_error("{}: tensor '{}' of type {}: {}", file, name, to_string(type), fits.error().message);
  }
  return {};
}

const Tensor* labels_of(const Model& model) {
  for (const char* name : {"label", "labels"}) {
    if (const auto labels = model.extra.find(name); labels != model.extra.end()) return &labels->second;
  }
  return nullptr;
}

// Of a classifier (one float output [rows, classes]): one integer a row. To other models the array means nothing.
Expected<void> check_labels(const std::string& file, const Model& model,
                            const std::map<std::string, TensorType>& types) {
  const Tensor* labels = labels_of(model);
  if (labels == nullptr || model.graph.outputs.size() != 1) return {};
  const auto output = types.find(model.graph.outputs[0].name);
  if (output == types.end() || !is_float(output->second.dtype) || !output->second.shape) return {};
  const Shape& shape = *output->second.shape;
  if (shape.size() != 2 || shape[1] < 2) return {};
  if (!is_integer(labels->dtype()) || labels->shape() != Shape{shape[0]}) {
    return make_error("{}: array 'label' is {}; the accuracy of '{}' needs one integer a row, int64{}", file,
                      to_string(TensorType{labels->dtype(), labels->shape()}), output->first,
                      to_string(Shape{shape[0]}));
  }
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    const std::int64_t label = labels->int_at(row);
    if (label < 0 || label >= shape[1])
      return make_error("{}: label[{}] is {}; '{}' has the classes 0 to {}", file, row, label, output->first,
                        shape[1] - 1);
  }
  return {};
}

// Turns the model into its gradient or into a step of its training.
Expected<void> apply_mode(const Arguments& arguments, const TypeMap& types, Model& model) {
  TensorMap added;
  TrainingGraph training;
  if (arguments.mode == "gradient") {
    OPDIFF_TRY(training, make_gradient(model.graph, types));
  } else {
    const bool ends_in_logarithms =
        std::any_of(model.graph.nodes.begin(), model.graph.nodes.end(), [&](const Node& node) {
          return node.op == "LogSoftmax" && node.outputs[0] == model.graph.outputs.front().name;
        });
    OPDIFF_TRY(const LossSpec loss, parse_loss(!arguments.loss.empty() ? arguments.loss
                                               : ends_in_logarithms    ? "nll"
                                                                       : "cross-entropy"));
    OPDIFF_TRY(const OptimiserSpec optimiser, parse_optimiser(arguments.optimiser));
    OPDIFF_TRY(StepGraph step, make_step(model.graph, loss, optimiser));
    OPDIFF_TRY(added, step_inputs(step, optimiser, model.extra, arguments.seed));
    training = std::move(step.training);
  }
  model.graph = std::move(training.graph);
  model.training = std::move(training.training);
  OPDIFF_RETURN_IF_ERROR(validate(model.graph));
  OPDIFF_TRY(const auto inputs, input_types(model.graph));
  for (const auto& [name, tensor] : draw_inputs(inputs, arguments.seed)) {
    if (model.inputs.contains(name)) continue;
    const auto found = added.find(name);
    const auto given = model.extra.find(name);
    model.inputs[name] = found != added.end() ? found->second : given != model.extra.end() ? given->second : tensor;
  }
  return {};
}

Expected<Model> load(const Arguments& arguments) {
  Model model;
  for (const std::string& text : arguments.dims) {
    OPDIFF_TRY(const auto pair, parse_pair(text, "--dim", "NAME=SIZE, such as batch=4"));
    std::int64_t size = 0;
    const char* const end = pair.second.data() + pair.second.size();
    const auto [stop, error] = std::from_chars(pair.second.data(), end, size);
    if (error != std::errc() || stop != end || size < 0)
      return make_error("--dim {}: '{}' is no size", text, pair.second);
    const auto [known, is_new] = model.dimensions.emplace(pair.first, size);
    if (!is_new && known->second != size)
      return make_error("--dim {}: '{}' is {} already", text, pair.first, known->second);
  }
  OPDIFF_TRY(model.graph, read_onnx(arguments.model));
  OPDIFF_TRY(model.sha256, sha256_of_file(arguments.model));
  if (const auto valid = validate(model.graph); !valid) return with_context(arguments.model, valid.error());
  if (!arguments.inputs.empty()) {
    OPDIFF_TRY(TensorMap given, read_npz(arguments.inputs));
    OPDIFF_TRY(SplitInputs split, split_inputs(model.graph, std::move(given), arguments.inputs));
    model.inputs = std::move(split.inputs);
    model.extra = std::move(split.extra);
  }
  const bool all = !arguments.inputs.empty();
  if (const auto bound = bind_dimensions(model.graph, model.dimensions, model.inputs, all); !bound) {
    return with_context(arguments.model, bound.error());
  }
  const auto types = input_types(model.graph);
  if (!types) return with_context(arguments.model, types.error());
  const auto inferred = infer_types(model.graph, *types);
  if (!inferred) return with_context(arguments.model, inferred.error());
  if (const auto same = check_declared_outputs(model.graph, *inferred); !same) {
    return with_context(arguments.model, same.error());
  }
  OPDIFF_RETURN_IF_ERROR(check_sizes(arguments.model, *inferred));
  OPDIFF_RETURN_IF_ERROR(check_labels(arguments.inputs, model, *inferred));
  if (!all) model.inputs = draw_inputs(*types, arguments.seed);
  if (arguments.mode != "forward")
    if (const auto applied = apply_mode(arguments, *inferred, model); !applied)
      return with_context(fmt::format("{} (--mode {})", arguments.model, arguments.mode), applied.error());
  return model;
}

// What makes a clean result say little.
void warn_of_inputs(const Arguments& arguments, const Model& model) {
  const auto warn = [](const std::string& text) { fmt::print(stderr, "opdiff: warning: {}\n", escape_controls(text)); };
  for (const auto& [name, tensor] : model.inputs) {
    if (tensor.size() == 0) {
      warn(fmt::format("input '{}' is {}: it has no elements", name,
                       to_string(TensorType{tensor.dtype(), tensor.shape()})));
    } else if (is_float(tensor.dtype())) {
      std::int64_t finite = 0;
      for (std::int64_t i = 0; i < tensor.size() && finite == 0; ++i) finite += std::isfinite(tensor.at(i));
      if (finite == 0) warn(fmt::format("no element of input '{}' is a finite number", name));
    }
  }
  if (arguments.mode != "forward") return;
  for (const auto& [name, tensor] : model.extra)
    if (name != "label" && name != "labels")
      warn(fmt::format("{}: array '{}' is no input of the model, it is not used", arguments.inputs, name));
}

// The specs of --backends, then those that only --bind names; and for each --bind which of them computes what.
struct Plan {
  std::vector<BackendSpec> specs;
  std::vector<std::pair<std::string, std::size_t>> bindings;
};

std::size_t place_of(const std::vector<BackendSpec>& specs, const BackendSpec& spec) {
  std::size_t place = 0;
  while (place < specs.size() && to_string(specs[place]) != to_string(spec)) ++place;
  return place;
}

Expected<Plan> parse_plan(const Arguments& arguments, const Graph& graph) {
  Plan plan;
  for (const std::string& text : arguments.backends) {
    OPDIFF_TRY(const auto specs, parse_spec_list(text));
    for (const BackendSpec& spec : specs) {
      if (place_of(plan.specs, spec) < plan.specs.size()) {
        return make_error("--backends names {} twice", to_string(spec));
      }
      plan.specs.push_back(spec);
    }
  }
  for (const std::string& text : arguments.bindings) {
    OPDIFF_TRY(const auto pair, parse_pair(text, "--bind", "OPERATOR=BACKEND or NODE=BACKEND, such as Conv=onednn"));
    const bool known = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&, &what = pair.first](const Node& node) {
      return node.id == what || node.op == what;
    });
    if (!known) return make_error("--bind {}: {} has no node and no operator '{}'", text, arguments.model, pair.first);
    const auto spec = parse_spec(pair.second);
    if (!spec) return with_context("--bind " + text, spec.error());
    const std::size_t place = place_of(plan.specs, *spec);
    if (place == plan.specs.size()) plan.specs.push_back(*spec);
    plan.bindings.emplace_back(pair.first, place);
  }
  return plan;
}

bool colour_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");  // https://no-color.org
  return isatty(STDOUT_FILENO) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

void print(const Arguments& arguments, const RunRecord& record) {
  if (arguments.json) {
    fmt::print("{}\n", result_json(record).dump(1));
    return;
  }
  const std::string report = console_report(record, {.colour = colour_wanted(), .details = arguments.details});
  fmt::print("{}", arguments.quiet ? report.substr(0, report.find('\n') + 1) : report);
}

Expected<int> compare(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  OPDIFF_TRY(const Policy policy, parse_policy(arguments));
  OpenOptions open;
  open.threads = arguments.threads;
  open.even_dead = true;
  open.count_memory = arguments.profile;
  open.limits.prepare_seconds = open.limits.run_seconds = arguments.time_limit;
  open.limits.interrupted = watch_for_interruption();
  if (!arguments.memory_limit.empty()) {
    OPDIFF_TRY(open.limits.resident_bytes, parse_bytes(arguments.memory_limit));
  }
  OPDIFF_TRY(const Model model, load(arguments));
  warn_of_inputs(arguments, model);
  OPDIFF_TRY(const Plan plan, parse_plan(arguments, model.graph));
  OutFolder out;
  if (!arguments.out.empty()) {
    OPDIFF_TRY(out, OutFolder::claim(arguments.out));
  }

  std::vector<std::unique_ptr<Opening>> openings;
  CompareRequest request{model.graph, model.inputs, {}, plan.bindings};
  for (const BackendSpec& spec : plan.specs) {
    Opening* opening = openings.emplace_back(std::make_unique<Opening>(spec, open)).get();
    request.backends.push_back(
        {to_string(spec), [opening] { return opening->get(); },
         [opening](const std::vector<std::string>& passes) { return opening->without(passes); }});
  }

  ProgressLine line(!arguments.quiet && isatty(STDERR_FILENO) != 0);
  CompareOptions options;
  options.seed = arguments.seed;
  options.threads = arguments.threads > 0 ? arguments.threads : static_cast<int>(std::thread::hardware_concurrency());
  options.localise = arguments.localise;
  options.profile = arguments.profile;
  options.training = model.training;
  options.rtol = arguments.rtol;
  options.atol = arguments.atol;
  if (const Tensor* labels = labels_of(model)) options.labels = *labels;
  options.interrupted = open.limits.interrupted;
  options.progress = [&line](const Progress& progress) { line.show(progress.what, progress.done, progress.total); };
  Expected<CompareResult> compared = compare_model(request, options);
  line.clear();
  if (!compared) {
    const bool of_model = compared.error().message.rfind("node ", 0) == 0;
    return of_model ? with_context(arguments.model, compared.error()) : tl::unexpected<Error>(compared.error());
  }
  CompareResult result = *std::move(compared);

  RunRecord record;
  record.version = OPDIFF_VERSION;
  record.model_file = arguments.model;
  record.model_sha256 = model.sha256;
  record.inputs_file = arguments.inputs;
  record.dimensions = model.dimensions;
  record.mode = arguments.mode;
  record.loss = arguments.loss;
  record.optimiser = arguments.optimiser;
  record.seed = arguments.seed;
  record.out = arguments.out;
  record.result = std::move(result);
  record.status = status_lines(record.result, policy);
  record.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const auto& entry : policy.accept) {
    const Policy alone{.fail_on = {}, .accept = {entry}};
    const auto& nodes = record.result.comparison.nodes;
    const bool used = std::any_of(nodes.begin(), nodes.end(), [&](const NodeResult& node) {
      return std::any_of(node.backends.begin(), node.backends.end(), [&](const auto& outcome) {
        return outcome.second.worst() != nullptr && alone.accepts(*outcome.second.worst(), node);
      });
    });
    // What was accepted has been repaired since, or the name is misspelt.
    if (!used) fmt::print(stderr, "opdiff: --accept {}={} accepted nothing\n", to_string(entry.first), entry.second);
  }
  name_repeats(&record);
  print(arguments, record);  // first: what was found must not be lost with a full disk
  std::fflush(stdout);
  if (!arguments.out.empty()) {
    OPDIFF_RETURN_IF_ERROR(out.clear({arguments.model, arguments.inputs}));
    OPDIFF_RETURN_IF_ERROR(write_result(record));
  }
  return static_cast<int>(worst_status(record.status));
}

}  // namespace

void add_compare_command(CLI::App& app, int* status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("compare", "Find the wrong operator of a model, with proof");
  command->add_option("model", arguments->model, "the ONNX file")->required();
  command
      ->add_option("--backends,--backend", arguments->backends,
                   "specs, separated by commas; `key=value` after a spec with options belongs to it; may be repeated")
      ->required();
  command->add_option("--inputs", arguments->inputs,
                      "inputs by name (.npz); default: drawn from the seed. An array `label` gives the accuracy");
  command->add_option("--out", arguments->out, "folder for result.json and the culprits' cases");
  command
      ->add_option("--mode", arguments->mode,
                   "forward (default); gradient: of every weight and input, from drawn cotangents; step: loss,\n"
                   "gradients and the optimiser's update, training mode of normalisations included")
      ->check(CLI::IsMember({"forward", "gradient", "step"}));
  command->add_option("--loss", arguments->loss,
                      "of --mode step; default cross-entropy, nll after LogSoftmax; the label is the array `label` of "
                      "--inputs:\n" +
                          loss_table());
  command->add_option("--optimizer,--optimiser", arguments->optimiser,
                      "of --mode step, NAME:key=value,...; default sgd:lr=0.01,momentum=0.9:\n" + optimiser_table());
  command->add_option("--dim", arguments->dims, "NAME=SIZE of a symbolic dimension; may be repeated");
  command->add_option("--bind", arguments->bindings,
                      "OPERATOR=BACKEND or NODE=BACKEND: one more run, the rest on the first backend; may be repeated");
  command->add_option("--fail-on", arguments->fail_on, "a verdict at this rung or worse ends with status 1");
  command->add_option(
      "--accept", arguments->accept,
      "RUNG=NAME that --fail-on lets pass, such as precision=bf16; or known: the documented divergences of\n"
      "known.toml, which otherwise end with status 1; may be repeated");
  command->add_option("--rtol", arguments->rtol, "also fail where an output differs by more than atol + rtol |right|")
      ->check(number_in(0, 1e300));
  command->add_option("--atol", arguments->atol, "see --rtol")->check(number_in(0, 1e300));
  command->add_flag("--profile", arguments->profile,
                    "peak memory per node (shown with --details), median times (slower)");
  command->add_option("--seed", arguments->seed, "of drawn inputs and the noise floor")
      ->check(whole_number())
      ->capture_default_str();
  command->add_option("--time-limit", arguments->time_limit, "seconds for one request to a backend")
      ->check(number_in(0.001, 1e9))
      ->capture_default_str();
  command->add_option("--memory-limit", arguments->memory_limit,
                      "resident memory of one backend, such as 4G; default: 3/4 of the machine's");
  command->add_option("--threads", arguments->threads, "of each backend and of the judge; default: all")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      ->add_option("--localise", arguments->localise,
                   "culprits of one backend, the worst first, that are localised in full: stage, pass, substitution;\n"
                   "the others are listed on the evidence of their operators' own bounds")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command->add_flag("--details", arguments->details, "a table of every node on every backend");
  command->add_flag("--quiet", arguments->quiet, "the first line only");
  command->add_flag("--json", arguments->json, "print result.json instead of the report");
  command->footer(
      "Exit status: 0 clean, 1 a defect was found, 2 cannot run, 3 a backend crashed, hung or ran out of memory. 3\n"
      "outranks 1, 1 outranks 2, and every reason is listed. A whole model that is merely farther from the "
      "reference\n"
      "than its noise floor explains, with no operator proven wrong, is a warning (status 0; 1 with --fail-on "
      "unlikely);\n"
      "one of a wrong shape, or with other infinite or NaN values, is a defect.\n\n"
      "Examples:\n"
      "  opdiff compare lenet5.onnx --backends onnxruntime,torch,onednn --inputs digits.npz --out result\n"
      "  opdiff compare net.onnx --backends onnxruntime@1.23.2:opt=basic,disable=MatMulAddFusion --dim batch=4\n"
      "  opdiff compare net.onnx --backends onnxruntime,onednn --bind Conv=onednn --fail-on precision\n"
      "  opdiff compare net.onnx --backends torch,onednn --mode gradient\n"
      "  opdiff compare net.onnx --backends torch:optimizer=fused --mode step --optimizer adam:lr=1e-3\n"
      "  opdiff compare net.onnx --backends faulty:base=onnxruntime,op=Conv,fault=scale   (opdiff backend list "
      "faulty)");
  command->callback([arguments, status] {
    const Expected<int> ended = compare(*arguments);
    *status = ended ? *ended : cannot_run(ended.error());
  });
}

}  // namespace opdiff
