#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/file.h"
#include "base/sha256.h"
#include "graph/onnx_reader.h"
#include "graph/onnx_writer.h"
#include "graph/validate.h"
#include "judge/judge.h"
#include "ops/meta_operator.h"
#include "train/curve_noise.h"
#include "train/non_finite.h"

namespace opdiff {
namespace {

constexpr int kAttempts = 3;              // at one step, with a fresh worker each
constexpr std::int64_t kTestBatch = 500;  // rows at most: activations of a wide network stay small
constexpr int kFloorRuns = 4;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The model with its batch dimension bound, and the types of its tensors.
struct BoundModel {
  Graph graph;
  TypeMap types;
};

Expected<BoundModel> bind_batch(const Graph& model, std::int64_t batch) {
  BoundModel bound{model, {}};
  if (model.inputs.size() != 1)
    return make_error("the model has {} inputs; one, the images, can be trained", model.inputs.size());
  const ValueInfo& input = model.inputs[0];
  if (!input.shape || input.shape->empty())
    return make_error("input '{}' has no known rank: [batch, ...] is expected", input.name);
  const Dimension& first = input.shape->front();
  if (first.value && *first.value != batch)
    return make_error(
        "input '{}' is fixed to batches of {}, not of {}; export the model with a symbolic batch, or "
        "train with batch = {} and a number of samples that it divides",
        input.name, *first.value, batch, *first.value);
  if (!first.value && !first.symbol.empty()) {
    OPDIFF_RETURN_IF_ERROR(bind_dimensions(bound.graph, {{first.symbol, batch}}, {}, false));
  } else {
    bound.graph.inputs[0].shape->front().value = batch;
  }
  OPDIFF_TRY(const auto inputs, input_types(bound.graph));
  OPDIFF_TRY(bound.types, infer_types(bound.graph, inputs));
  return bound;
}

// A step, or the model alone, for batches of one size.
struct Program {
  StepGraph step;    // of a step
  BoundModel model;  // of the model alone
  std::unique_ptr<AssignedGraph> assigned;
  std::unique_ptr<StepCheck> check;  // where steps are proven
};

class Trainer {
 public:
  Trainer(const Recipe& recipe, const TrainOptions& options) : recipe_(recipe), options_(options) {}

  Expected<TrainResult> run() {
    OPDIFF_RETURN_IF_ERROR(load());
    OPDIFF_RETURN_IF_ERROR(read_data());
    OPDIFF_RETURN_IF_ERROR(assign_nodes());
    OPDIFF_RETURN_IF_ERROR(start());
    if (step_ < total_) OPDIFF_RETURN_IF_ERROR(try_first_step());
    if (options_.free) free_ = std::make_unique<FreeRun>(state_, recipe_.seed);
    loop();
    result_.curves = curves_;
    result_.step = step_;
    result_.epoch = epoch_;
    for (const Party& party : parties_) result_.deaths += party.deaths;
    result_.specs = assignment_.specs;
    result_.nodes_of.assign(assignment_.specs.size(), 0);
    for (const int label : assignment_.labels) ++result_.nodes_of[static_cast<std::size_t>(label)];
    for (auto& [batch, program] : programs_)
      if (program.check) add_rows(program.check->nodes(), &result_.checked);
    return std::move(result_);
  }

 private:
  bool stopped() const { return options_.interrupted != nullptr && options_.interrupted->load(); }
  void note(const std::string& text) const {
    if (options_.on_note) options_.on_note(text);
  }

  Expected<void> load() {
    OPDIFF_TRY(model_, read_onnx(recipe_.model));
    if (const auto valid = validate(model_); !valid) return with_context(recipe_.model.string(), valid.error());
    const auto loss = parse_loss(recipe_.loss);
    if (!loss) return with_context(recipe_.file.string(), loss.error());
    loss_ = *loss;
    const auto optimiser = parse_optimiser(recipe_.optimiser);
    if (!optimiser) return with_context(recipe_.file.string(), optimiser.error());
    optimiser_ = *optimiser;
    const auto program = make_program(recipe_.batch);
    if (!program) return with_context(recipe_.model.string(), program.error());
    main_ = &programs_[recipe_.batch];
    for (const auto& [name, tensor] : main_->step.initial)
      if (!all_finite(tensor)) return make_error("{}: initialiser '{}' is not finite", recipe_.model.string(), name);
    return {};
  }

  // Of a step over batches of so many rows.
  Expected<void> make_program(std::int64_t batch) {
    Program& program = programs_[batch];
    OPDIFF_TRY(const BoundModel bound, bind_batch(model_, batch));
    OPDIFF_TRY(program.step, make_step(bound.graph, loss_, optimiser_));
    return {};
  }

  Expected<void> read_data() {
    OPDIFF_TRY(train_, read_dataset(recipe_.train, recipe_.data_hint));
    if (recipe_.test) {
      OPDIFF_TRY(test_, read_dataset(*recipe_.test, recipe_.data_hint));
    }
    OPDIFF_TRY(const auto types, input_types(main_->step.training.graph));
    const TensorType& input = types.at(model_.inputs[0].name);
    if (input.dtype != DType::f32)
      return make_error("{}: input '{}' is {}; images are float", recipe_.model.string(), model_.inputs[0].name,
                        to_string(input));
    const Shape sample(input.shape->begin() + 1, input.shape->end());
    const TensorType& label = main_->step.types.at(kLabel);
    classes_ = is_integer(label.dtype) ? (*main_->step.types.at(main_->step.scores).shape)[1] : 0;
    std::optional<std::int64_t> ignored;
    const auto& attributes = loss_.node.attributes;
    if (const auto found = attributes.find("ignore_index"); found != attributes.end())
      if (const auto* value = std::get_if<std::int64_t>(&found->second)) ignored = *value;
    const auto prepare = [&](const Dataset& data, std::optional<Preprocessing>* preprocessing) -> Expected<void> {
      const Shape raw(data.images.shape().begin() + 1, data.images.shape().end());
      auto made = Preprocessing::make(recipe_.transform, raw, sample);
      if (!made) return with_context(data.images_name, made.error());
      *preprocessing = *std::move(made);
      if (classes_ > 0) {
        if (label.shape->size() != 1)
          return make_error("{}: labels of shape {} are not supported; one a sample", recipe_.model.string(),
                            to_string(*label.shape));
        return check_classes(data, classes_, ignored);
      }
      Shape expected = *label.shape;
      expected[0] = data.size();
      if (data.labels.shape() != expected)
        return make_error("{}: has shape {}; the loss '{}' needs {}", data.labels_name, to_string(data.labels.shape()),
                          recipe_.loss, to_string(expected));
      return {};
    };
    OPDIFF_RETURN_IF_ERROR(prepare(train_, &train_preprocessing_));
    if (recipe_.test) OPDIFF_RETURN_IF_ERROR(prepare(test_, &test_preprocessing_));
    per_epoch_ = (train_.size() + recipe_.batch - 1) / recipe_.batch;
    total_ = recipe_.epochs * per_epoch_;
    if (options_.steps) total_ = std::min(total_, *options_.steps);
    if (const std::int64_t rest = train_.size() % recipe_.batch; rest != 0) {
      const auto program = make_program(rest);
      if (!program) return with_context(recipe_.model.string(), program.error());
    }
    return {};
  }

  Expected<void> assign_nodes() {
    const Graph& graph = main_->step.training.graph;
    OPDIFF_TRY(assignment_, assign(graph, recipe_.bindings, recipe_.backend));
    for (const std::string& spec : assignment_.specs) add_party(spec);
    for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
      Party& party = parties_[static_cast<std::size_t>(assignment_.labels[k])];
      const Node& node = graph.nodes[k];
      if (!party.open || !node.domain.starts_with("opdiff.")) continue;
      OPDIFF_TRY(Backend* const backend, party.open());
      if (backend->info().gradient && !backend->info().importing) continue;
      if (options_.fallback) {
        fall_back(static_cast<int>(k));
        continue;
      }
      return make_error(
          "backend '{}' computes no gradients and updates, so not node '{}' ({}.{}); bind such nodes to "
          "another ({}), or let the reference take them: --fallback reference",
          party.spec, node.id, node.domain, node.op,
          node.domain == kGradientDomain ? "--bind '*/gradient=torch' --bind '*/update=torch'"
                                         : fmt::format("--bind {}=torch", node.op));
    }
    build();
    return {};
  }

  // Whether one backend computes everything, so that nothing else runs while it does.
  bool alone() const {
    return assignment_.specs.size() == 1 && options_.check_every == 0 && !options_.check_last && !options_.free;
  }

  void add_party(const std::string& spec) {
    parties_.push_back({spec, spec == "reference" ? BackendSource() : options_.open(spec, alone()), 0});
  }

  void fall_back(int node) {
    auto& specs = assignment_.specs;
    if (std::find(specs.begin(), specs.end(), "reference") == specs.end()) {
      specs.emplace_back("reference");
      add_party("reference");
    }
    assignment_.labels[static_cast<std::size_t>(node)] =
        static_cast<int>(std::find(specs.begin(), specs.end(), "reference") - specs.begin());
    result_.fallen_back.push_back(main_->step.training.graph.nodes[static_cast<std::size_t>(node)].id);
  }

  void build() {
    tests_.clear();
    for (auto& [batch, program] : programs_) {
      const Graph& graph = program.step.training.graph;
      program.check.reset();
      program.assigned = std::make_unique<AssignedGraph>(graph, program.step.types, assignment_.labels, parties_,
                                                         &program.step.training.training);
      if (options_.check_every > 0 || options_.check_last)
        program.check =
            std::make_unique<StepCheck>(graph, program.step.types, assignment_.labels, parties_, options_.threads);
    }
    result_.segments = main_->assigned->segment_count();
  }

  std::map<std::string, std::string> made_with(const std::string& model_sum) const {
    const Transform& t = recipe_.transform;
    return {{"model", model_sum},
            {"loss", recipe_.loss},
            {"optimiser", recipe_.optimiser},
            {"batch", fmt::format("{}", recipe_.batch)},
            {"seed", fmt::format("{}", recipe_.seed)},
            {"noise", options_.noise ? fmt::format("{}", *options_.noise) : ""},
            {"samples", fmt::format("{}", train_.size())},
            {"transform", fmt::format("flip {} resize {} mean {} deviation {}", t.flip,
                                      t.resize ? fmt::format("{}x{}", t.resize->first, t.resize->second) : "none",
                                      fmt::join(t.mean, " "), fmt::join(t.deviation, " "))}};
  }

  Expected<void> start() {
    state_ = options_.noise ? off_by_a_rounding(main_->step.initial, *options_.noise) : main_->step.initial;
    OPDIFF_TRY(const std::string sum, sha256_of_file(recipe_.model));
    made_with_ = made_with(sum);
    if (!options_.resume) return {};
    OPDIFF_TRY(auto found, read_checkpoint(recipe_.out));
    if (!found) {
      note(fmt::format("{}: no checkpoint yet, starting from the model", recipe_.out.string()));
      return {};
    }
    const std::string file = (recipe_.out / "checkpoint.json").string();
    for (const auto& [key, value] : made_with_)
      if (found->made_with[key] != value)
        return make_error(
            "{}: was made with {} = {}, the recipe says {}; train into another folder (--out), or drop "
            "--resume to start again",
            file, key, found->made_with[key], value);
    for (auto& [name, tensor] : state_) {
      const auto saved = found->state.find(name);
      if (saved == found->state.end() || saved->second.shape() != tensor.shape() ||
          saved->second.dtype() != tensor.dtype())
        return make_error("{}: has no '{}' of type {}", file, name, to_string(type_of(tensor)));
      tensor = saved->second;
    }
    const auto past = static_cast<std::int64_t>(found->curves.steps.size());
    if (found->step != past || found->place < 0 || found->place > per_epoch_ || found->epoch < 0 ||
        found->epoch * per_epoch_ + found->place != found->step)
      return make_error("{}: its step, epoch and curves do not belong together", file);
    step_ = found->step;
    epoch_ = found->epoch;
    place_ = found->place;
    curves_ = std::move(found->curves);
    note(fmt::format("goes on after step {}", step_));
    return {};
  }

  TensorMap inputs_of(const StepGraph& step, std::span<const std::int64_t> rows) const {
    TensorMap inputs = state_;
    inputs[model_.inputs[0].name] =
        train_preprocessing_->batch(train_.images, rows, flips_of(rows, recipe_.transform.flip, recipe_.seed, epoch_));
    inputs[kLabel] = labels_of(train_, rows, step.types.at(kLabel).dtype);
    inputs[kLearningRate] = Tensor::scalar_like(DType::f32, optimiser_.learning_rate);
    inputs[kStep] = Tensor::scalar_like(DType::i64, step_);
    return inputs;
  }

  std::span<const std::int64_t> rows_of(std::int64_t place) {
    if (order_.empty() || order_epoch_ != epoch_) {
      order_ = shuffled(train_.size(), recipe_.seed, epoch_);
      order_epoch_ = epoch_;
    }
    const std::int64_t start = place * recipe_.batch, end = std::min(start + recipe_.batch, train_.size());
    return std::span(order_).subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start));
  }

  Program& program_of(std::span<const std::int64_t> rows) {
    return programs_.at(static_cast<std::int64_t>(rows.size()));
  }

  // Finds out, before anything counts, what a backend refuses.
  Expected<void> try_first_step() {
    const auto rows = rows_of(place_);
    Program& program = program_of(rows);
    const TensorMap inputs = inputs_of(program.step, rows);
    Outcome outcome = program.assigned->run(inputs);
    if (outcome.ok() || is_death(outcome.kind) || stopped()) return {};
    const Graph& graph = program.step.training.graph;
    std::string refused;
    std::vector<int> nodes;
    for (std::size_t label = 0; label < parties_.size(); ++label) {
      OPDIFF_TRY(const auto found, unsupported_nodes(graph, program.step.types, inputs, assignment_.labels,
                                                     static_cast<int>(label), parties_[label]));
      for (const UnsupportedNode& node : found) {
        nodes.push_back(node.index);
        if (nodes.size() <= 6)
          refused += fmt::format("\n  {} (on {}): {}", graph.nodes[static_cast<std::size_t>(node.index)].id,
                                 parties_[label].spec, node.reason);
      }
    }
    if (nodes.empty()) return make_error("{}", outcome.reason);
    if (!options_.fallback)
      return make_error(
          "{} of {} nodes are not computed by the backend that they are bound to; bind them to another "
          "(--bind), or let the reference take them (--fallback reference):{}{}",
          nodes.size(), graph.nodes.size(), refused, nodes.size() > 6 ? "\n  ..." : "");
    for (const int node : nodes) fall_back(node);
    build();
    outcome = program.assigned->run(inputs);
    if (!outcome.ok() && !is_death(outcome.kind) && !stopped()) return make_error("{}", outcome.reason);
    return {};
  }

  void loop() {
    auto started = std::chrono::steady_clock::now();
    while (step_ < total_ || place_ == per_epoch_) {  // the latter: interrupted in the test after an epoch
      if (stopped()) return end(TrainEnd::interrupted, "");
      if (place_ < per_epoch_ && !one_step()) return;
      if (place_ == per_epoch_ || step_ == total_) {
        if (!end_of_epoch(place_ == per_epoch_, seconds_since(started))) return;
        started = std::chrono::steady_clock::now();
      } else if (recipe_.checkpoint_steps > 0 && step_ % recipe_.checkpoint_steps == 0) {
        if (!save()) return;
      }
    }
  }

  // False: the training ends here.
  bool one_step() {
    const auto rows = rows_of(place_);
    Program& program = program_of(rows);
    const TensorMap inputs = inputs_of(program.step, rows);
    const bool checked =
        (options_.check_every > 0 && step_ % options_.check_every == 0) || (options_.check_last && step_ + 1 == total_);
    if (checked) program.check->prepare(inputs);
    const auto start = std::chrono::steady_clock::now();
    Outcome outcome;
    if (!attempt([&] { return outcome = program.assigned->run(inputs); })) return false;
    result_.step_seconds += seconds_since(start);
    ++result_.steps_run;
    if (checked && !judge(program, inputs, outcome)) return false;
    if (free_ && !drift(program, inputs, outcome)) return false;

    const Tensor& loss = outcome.outputs.at(kLoss);
    std::string bad = all_finite(loss) ? "" : kLoss;
    for (const auto& [name, next] : program.step.next)
      if (bad.empty() && !all_finite(outcome.outputs.at(next))) bad = next;
    if (!bad.empty()) {
      end(TrainEnd::not_finite, fmt::format("step {}: {}", step_ + 1,
                                            explain_non_finite(program.step.training.graph, program.step.types, inputs,
                                                               assignment_.labels, parties_, bad)));
      return false;
    }
    for (const auto& [name, next] : program.step.next) state_[name] = outcome.outputs.at(next);
    StepPoint point{loss.at(0), -1, static_cast<std::int64_t>(rows.size())};
    if (classes_ > 0) point.right = count_right(outcome.outputs.at(program.step.scores), inputs.at(kLabel));
    curves_.steps.push_back(point);
    ++step_;
    ++place_;
    if (options_.on_step) {
      std::optional<double> accuracy;
      if (point.right >= 0) accuracy = static_cast<double>(point.right) / static_cast<double>(point.rows);
      options_.on_step({step_, total_, epoch_, point.loss, accuracy});
    }
    return true;
  }

  template <class Run>
  bool attempt(const Run& run) {
    std::string reason;
    for (int k = 0; k < kAttempts; ++k) {
      const Outcome outcome = run();
      if (outcome.ok()) return true;
      if (stopped()) {
        end(TrainEnd::interrupted, "");
        return false;
      }
      reason = outcome.reason;
      if (!is_death(outcome.kind)) {
        end(TrainEnd::failed, fmt::format("step {}: {}", step_ + 1, reason));
        return false;
      }
      note(fmt::format("step {}: {}; {}", step_ + 1, reason,
                       k + 1 < kAttempts ? "again with a fresh worker" : "that was the last attempt"));
    }
    end(TrainEnd::died, fmt::format("step {}: {}", step_ + 1, reason));
    return false;
  }

  bool judge(const Program& program, const TensorMap& inputs, const Outcome& own) {
    TensorMap reference;
    std::string error;
    const bool done = attempt([&] {
      Outcome outcome;
      auto outputs = program.check->check(step_ + 1, inputs, &outcome);
      if (!outputs) return Outcome::failure(OutcomeKind::error, outputs.error().message);
      reference = *std::move(outputs);
      return outcome;
    });
    if (!done) return false;
    LockstepPoint point;
    point.step = step_ + 1;
    point.loss = own.outputs.at(kLoss).at(0);
    point.reference_loss = reference.at(kLoss).at(0);
    for (const auto& [name, next] : program.step.next) {
      const std::vector<double> a = own.outputs.at(next).to_doubles(), b = reference.at(next).to_doubles();
      for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        if (const double difference = std::fabs(a[i] - b[i]); difference > point.difference) {
          point.difference = difference;
          point.tensor = name;
        }
    }
    // The floor costs several steps: it is measured once.
    if (result_.lockstep.empty() && point.difference > 0) {
      const auto floor = noise_floor(program.step.training.graph, inputs, kFloorRuns, recipe_.seed);
      const std::string& next = program.step.next.at(point.tensor);
      if (floor) {
        const FloorComparison compared = compare_with_floor(own.outputs.at(next), reference.at(next), floor->at(next));
        point.reading = compared.rms;
      }
    }
    result_.lockstep.push_back(point);
    return true;
  }

  bool drift(const Program& program, const TensorMap& inputs, const Outcome& own) {
    const auto point = free_->advance(program.step, step_ + 1, inputs, own.outputs);
    if (!point) {
      end(TrainEnd::failed, fmt::format("step {}: {}", step_ + 1, point.error().message));
      return false;
    }
    result_.drift.push_back(*point);
    if (!point->left() || result_.left) return true;
    result_.left = *point;
    StepCheck here(program.step.training.graph, program.step.types, assignment_.labels, parties_, options_.threads);
    const bool done = attempt([&] {
      Outcome outcome;
      const auto outputs = here.check(step_ + 1, inputs, &outcome);
      return outputs ? outcome : Outcome::failure(OutcomeKind::error, outputs.error().message);
    });
    result_.checked_where_left = here.nodes();
    return done;
  }

  static std::int64_t count_right(const Tensor& scores, const Tensor& labels) {
    const std::int64_t classes = scores.shape()[1];
    std::int64_t right = 0;
    const std::vector<double> values = scores.to_doubles();
    for (std::int64_t row = 0; row < labels.size(); ++row) {
      const auto first = values.begin() + row * classes;
      right += std::max_element(first, first + classes) - first == labels.int_at(row) ? 1 : 0;
    }
    return right;
  }

  // The trained model: its own graph, other initialisers.
  Graph trained(const Graph& graph) const {
    Graph result = graph;
    for (const auto& [name, tensor] : state_)
      if (const auto found = result.initialisers.find(name); found != result.initialisers.end()) found->second = tensor;
    return result;
  }

  bool test(TestPoint* point) {
    *point = {step_, 0, classes_ > 0 ? 0 : -1, 0};
    std::vector<std::int64_t> rows(static_cast<std::size_t>(test_.size()));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
    const auto& first = model_.inputs[0].shape->front();
    const std::int64_t size = first.value ? *first.value : std::min(kTestBatch, test_.size());
    double loss = 0;
    tests_.clear();
    for (std::int64_t start = 0; start < test_.size(); start += size) {
      const std::int64_t count = std::min(size, test_.size() - start);
      Program& program = tests_[count];
      if (!program.assigned) {
        auto bound = bind_batch(model_, count);
        if (!bound) return end(TrainEnd::failed, "testing: " + bound.error().message), false;
        program.model = *std::move(bound);
        program.model.graph = trained(program.model.graph);
        test_assignment_ = assign_like(program.model.graph, main_->step.training.graph, assignment_);
        program.assigned = std::make_unique<AssignedGraph>(program.model.graph, program.model.types,
                                                           test_assignment_.labels, parties_);
      }
      const auto part = std::span(rows).subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(count));
      const TensorMap inputs = {{model_.inputs[0].name, test_preprocessing_->batch(test_.images, part)}};
      Outcome outcome;
      if (!attempt([&] { return outcome = program.assigned->run(inputs); })) return false;
      const Tensor& scores = outcome.outputs.at(main_->step.scores);
      const Tensor labels = labels_of(test_, part, main_->step.types.at(kLabel).dtype);
      const Tensor* given[] = {&scores, &labels};
      Node node = loss_.node;
      node.id = kLoss;
      node.inputs = {main_->step.scores, kLabel};
      node.outputs = {kLoss};
      const auto value = evaluate_node(
          node, node.domain.empty() ? model_.opset() : main_->step.training.graph.opset(node.domain), given);
      if (!value) return end(TrainEnd::failed, "testing: " + value.error().message), false;
      loss += (*value)[0].at(0) * static_cast<double>(count);
      if (classes_ > 0) point->right += count_right(scores, labels);
      point->rows += count;
    }
    point->loss = loss / static_cast<double>(point->rows);
    return true;
  }

  bool end_of_epoch(bool whole, double seconds) {
    TrainOptions::EpochReport report{epoch_ + 1, recipe_.epochs, 0, std::nullopt, std::nullopt, seconds};
    std::int64_t rows = 0, right = 0;
    const std::size_t from = curves_.steps.size() - static_cast<std::size_t>(place_);
    for (std::size_t i = from; i < curves_.steps.size(); ++i) {
      const StepPoint& point = curves_.steps[i];
      report.loss += point.loss * static_cast<double>(point.rows);
      rows += point.rows;
      right += point.right;
    }
    report.loss /= static_cast<double>(rows);
    if (classes_ > 0) report.accuracy = static_cast<double>(right) / static_cast<double>(rows);
    if (recipe_.test) {
      TestPoint point;
      if (!test(&point)) return false;
      curves_.tests.push_back(point);
      report.test = point;
    }
    if (options_.on_epoch) options_.on_epoch(report);
    if (whole) {
      ++epoch_;
      place_ = 0;
    }
    return save();
  }

  Expected<void> write_files() {
    Checkpoint checkpoint{step_, epoch_, place_, state_, curves_, made_with_};
    OPDIFF_RETURN_IF_ERROR(write_checkpoint(recipe_.out, checkpoint));
    OPDIFF_RETURN_IF_ERROR(write_file_atomically(recipe_.out / "curves.csv", curves_csv(curves_)));
    return write_onnx_file(trained(model_), recipe_.out / "trained.onnx");
  }

  bool save() {
    const auto written = write_files();
    if (written) return true;
    result_.end = TrainEnd::failed;
    result_.reason = fmt::format("after step {}: {}; the checkpoint before it stays", step_, written.error().message);
    return false;
  }

  // Whatever was done is kept.
  void end(TrainEnd how, const std::string& reason) {
    result_.end = how;
    result_.reason = reason;
    if (step_ == 0) return;
    const std::string first = result_.reason;
    if (!save() && !first.empty()) result_.reason = first + "; " + result_.reason;
    result_.end = how == TrainEnd::interrupted ? result_.end : how;
  }

  const Recipe& recipe_;
  const TrainOptions& options_;
  Graph model_;
  LossSpec loss_;
  OptimiserSpec optimiser_;
  std::int64_t classes_ = 0;  // 0: the labels are no classes
  Dataset train_, test_;
  std::optional<Preprocessing> train_preprocessing_, test_preprocessing_;
  Assignment assignment_, test_assignment_;
  std::vector<Party> parties_;
  std::map<std::int64_t, Program> programs_;  // by rows of a batch
  Program* main_ = nullptr;
  std::map<std::int64_t, Program> tests_;  // prepared anew for each test: the weights are constants in them
  std::unique_ptr<FreeRun> free_;
  std::map<std::string, std::string> made_with_;

  TensorMap state_;
  Curves curves_;
  std::int64_t step_ = 0, epoch_ = 0, place_ = 0;  // steps done, of which epoch, and how many of it
  std::int64_t per_epoch_ = 0, total_ = 0;
  std::vector<std::int64_t> order_;
  std::int64_t order_epoch_ = -1;
  TrainResult result_;
};

}  // namespace

bool TrainResult::has_defect() const {
  const auto wrong = [](const CheckedNode& node) { return node.is_defect(); };
  return std::any_of(checked.begin(), checked.end(), wrong) ||
         std::any_of(checked_where_left.begin(), checked_where_left.end(), wrong);
}

Expected<TrainResult> train(const Recipe& recipe, const TrainOptions& options) {
  return Trainer(recipe, options).run();
}

}  // namespace opdiff
