#include "train/step.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/rng.h"
#include "graph/validate.h"
#include "ops/evaluate.h"
#include "ops/meta_operator.h"
#include "reference/evaluate.h"

namespace opdiff {
namespace {

struct NamedOperator {
  std::string_view name, op, domain, what;
};

constexpr NamedOperator kLosses[] = {
    {"cross-entropy", "CrossEntropyLoss", kTrainingDomain, "class scores and labels"},
    {"nll", "NegativeLogLikelihoodLoss", "", "log-probabilities and labels"},
    {"mse", "MSELoss", kTrainingDomain, "mean of squares"},
    {"l1", "L1Loss", kTrainingDomain, "mean of magnitudes"},
    {"huber", "HuberLoss", kTrainingDomain, "squares near zero, magnitudes beyond"},
    {"bce-with-logits", "BCEWithLogitsLoss", kTrainingDomain, "two classes, independent"},
};

constexpr NamedOperator kOptimisers[] = {
    {"sgd", "SGD", kTrainingDomain, "stochastic gradient descent, with momentum or Nesterov's"},
    {"rmsprop", "RMSprop", kTrainingDomain, "by the root mean square of gradients"},
    {"adagrad", "Adagrad", kTrainingDomain, "by the root of the sum of squares"},
    {"adam", "Adam", kTrainingDomain, "by first and second moments"},
    {"adamw", "Adam", kTrainingDomain, "Adam with decoupled weight decay"},
};

std::string table(std::span<const NamedOperator> entries, std::string_view extra) {
  std::string text;
  for (const NamedOperator& entry : entries) {
    text += fmt::format("  {:<16} {}", entry.name, entry.what);
    if (const MetaOperator* op = find_operator(entry.domain, entry.op); op && !op->attributes.empty()) {
      text += ":";
      for (const AttributeSpec& attribute : op->attributes) text += fmt::format(" {}", attribute.name);
    }
    text += fmt::format("{}\n", extra);
  }
  return text;
}

struct Option {
  std::string key, value;
};

// "NAME:key=value,key=value".
Expected<std::pair<std::string, std::vector<Option>>> split(const std::string& text, std::string_view what) {
  const std::size_t colon = text.find(':');
  std::vector<Option> options;
  std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string part = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      return make_error("{} '{}': '{}' is not of the form key=value", what, text, part);
    options.push_back({part.substr(0, equals), part.substr(equals + 1)});
  }
  return std::pair{text.substr(0, colon), options};
}

Expected<double> number(const std::string& text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return make_error("'{}' is no number", text);
  return value;
}

Expected<Attribute> attribute_of(const AttributeSpec& spec, const std::string& text) {
  if (spec.kind == AttributeKind::text) return Attribute(text);
  OPDIFF_TRY(const double value, number(text));
  if (spec.kind == AttributeKind::real) return Attribute(static_cast<float>(value));
  const auto whole = static_cast<std::int64_t>(value);
  if (spec.kind != AttributeKind::integer || static_cast<double>(whole) != value)
    return make_error("'{}' is no integer", text);
  return Attribute(whole);
}

// Finds the operator and sets its attributes; `take` may take options that are not the operator's.
template <class Take>
Expected<Node> parse(const std::string& text, std::string_view what, std::span<const NamedOperator> entries,
                     const Take& take) {
  OPDIFF_TRY(const auto parts, split(text, what));
  const auto entry = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == parts.first; });
  if (entry == entries.end()) {
    std::vector<std::string_view> names;
    for (const NamedOperator& e : entries) names.push_back(e.name);
    return make_error("{} '{}': there is no '{}'; one of: {}", what, text, parts.first, fmt::join(names, " "));
  }
  const MetaOperator* op = find_operator(entry->domain, entry->op);
  if (!op) return make_error("{} '{}': there is no operator {}", what, text, entry->op);
  Node node;
  node.op = entry->op;
  node.domain = entry->domain;
  if (entry->name == "adamw") node.attributes["decoupled"] = std::int64_t{1};
  for (const Option& option : parts.second) {
    const Expected<bool> taken = take(option);
    if (!taken) return make_error("{} '{}': {}: {}", what, text, option.key, taken.error().message);
    if (*taken) continue;
    const auto spec = std::find_if(op->attributes.begin(), op->attributes.end(),
                                   [&](const AttributeSpec& s) { return s.name == option.key; });
    if (spec == op->attributes.end()) {
      std::vector<std::string_view> names;
      for (const AttributeSpec& s : op->attributes) names.push_back(s.name);
      return make_error("{} '{}': {} has no option '{}'; it has: {}", what, text, entry->name, option.key,
                        fmt::join(names, " "));
    }
    auto value = attribute_of(*spec, option.value);
    if (!value) return make_error("{} '{}': {}: {}", what, text, option.key, value.error().message);
    node.attributes[option.key] = *std::move(value);
  }
  return node;
}

bool is_set(const Node& node, const std::string& attribute) {
  const auto found = node.attributes.find(attribute);
  if (found == node.attributes.end()) return false;
  if (const auto* real = std::get_if<float>(&found->second)) return *real != 0;
  const auto* integer = std::get_if<std::int64_t>(&found->second);
  return integer && *integer != 0;
}

// In the order of the operator's inputs after the gradient, by torch's names; "" where the attributes have no use for
// one.
std::vector<std::string> states_of(const Node& node) {
  const std::string momentum = is_set(node, "momentum") ? "momentum_buffer" : "";
  std::vector<std::string> states;
  if (node.op == "Adam")
    states = {"exp_avg", "exp_avg_sq", is_set(node, "amsgrad") ? "max_exp_avg_sq" : ""};
  else if (node.op == "Adagrad")
    states = {"sum"};
  else if (node.op == "RMSprop")
    states = {"square_avg", momentum, is_set(node, "centered") ? "grad_avg" : ""};
  else
    states = {momentum};
  while (!states.empty() && states.back().empty()) states.pop_back();
  return states;
}

ValueInfo value_of(const std::string& name, const TensorType& type) {
  ValueInfo info{name, type.dtype, std::vector<Dimension>()};
  if (!type.shape)
    info.shape.reset();
  else
    for (const std::int64_t extent : *type.shape) info.shape->push_back({extent, ""});
  return info;
}

class StepMaker {
 public:
  StepMaker(const Graph& model, const LossSpec& loss, const OptimiserSpec& optimiser)
      : graph_(model), loss_(loss), optimiser_(optimiser) {}

  Expected<StepGraph> run() {
    OPDIFF_RETURN_IF_ERROR(check_names());
    OPDIFF_RETURN_IF_ERROR(go_to_training());
    OPDIFF_RETURN_IF_ERROR(infer());
    choose_parameters();
    OPDIFF_RETURN_IF_ERROR(add_loss());
    OPDIFF_RETURN_IF_ERROR(infer());
    graph_.initialisers["loss/cotangent"] = Tensor::scalar_like(types_.at(kLoss).dtype, 1);
    OPDIFF_TRY(step_.training, differentiate(graph_, types_, {{kLoss, "loss/cotangent"}}, step_.parameters));
    graph_ = std::move(step_.training.graph);
    // Gradients stay inside unless somebody asks; updates read them.
    std::erase_if(graph_.outputs, [&](const ValueInfo& output) { return output.name.ends_with("/gradient"); });
    add_updates();
    step_.training.graph = std::move(graph_);
    step_.training.training.updates = true;
    OPDIFF_RETURN_IF_ERROR(validate(step_.training.graph));
    graph_ = step_.training.graph;
    OPDIFF_RETURN_IF_ERROR(infer());
    step_.types = types_;
    return std::move(step_);
  }

 private:
  Expected<void> check_names() const {
    if (graph_.outputs.empty()) return make_error("the model has no output that a loss could read");
    for (const char* name : {kLoss, kLabel, kLearningRate, kStep}) {
      for (const ValueInfo& input : graph_.inputs)
        if (input.name == name) return make_error("the model has an input '{}': a training step needs this name", name);
      for (const Node& node : graph_.nodes)
        if (std::find(node.outputs.begin(), node.outputs.end(), name) != node.outputs.end())
          return make_error("node '{}' makes a tensor '{}': a training step needs this name", node.id, name);
    }
    return {};
  }

  // Normalisations by the batch's own statistics, with the running ones as state.
  Expected<void> go_to_training() {
    for (Node& node : graph_.nodes) {
      if (node.op != "BatchNormalization" || !node.domain.empty()) continue;
      if (graph_.opset() < 14)
        return make_error("node '{}' (BatchNormalization): training needs opset 14, the model has {}", node.id,
                          graph_.opset());
      node.attributes["training_mode"] = std::int64_t{1};
      node.outputs.resize(3);
      for (std::size_t k = 1; k < 3; ++k) {
        const std::string& running = node.inputs[k + 2];
        const auto initial = graph_.initialisers.find(running);
        if (initial == graph_.initialisers.end()) continue;  // shared with another node, or computed
        if (node.outputs[k].empty()) node.outputs[k] = running + "/new";
        carry(running, node.outputs[k]);
      }
    }
    return {};
  }

  // Makes an input of an initialiser: the step gives its next value.
  void carry(const std::string& name, const std::string& next) {
    const auto initial = graph_.initialisers.find(name);
    const TensorType type{initial->second.dtype(), initial->second.shape()};
    step_.initial[name] = initial->second;
    graph_.initialisers.erase(initial);
    graph_.inputs.push_back(value_of(name, type));
    graph_.outputs.push_back(value_of(next, type));
    step_.next[name] = next;
  }

  Expected<void> infer() {
    std::map<std::string, TensorType> inputs;
    for (const ValueInfo& input : graph_.inputs) {
      TensorType type{input.dtype, Shape()};
      if (!input.shape) return make_error("input '{}': its shape must be known to train", input.name);
      for (const Dimension& d : *input.shape) {
        if (!d.value)
          return make_error("input '{}': dimension '{}' must be known to train (--dim)", input.name, d.symbol);
        type.shape->push_back(*d.value);
      }
      inputs[input.name] = type;
    }
    OPDIFF_TRY(types_, infer_types(graph_, inputs));
    return {};
  }

  // Scalars are constants of the formula (a scale, a bound), not weights.
  void choose_parameters() {
    for (const std::string& name : differentiable_tensors(graph_, types_)) {
      const auto found = graph_.initialisers.find(name);
      if (found != graph_.initialisers.end() && !found->second.shape().empty()) step_.parameters.push_back(name);
    }
  }

  Expected<void> add_loss() {
    step_.scores = graph_.outputs.front().name;
    const auto type = types_.find(step_.scores);
    if (type == types_.end() || !type->second.shape || !is_float(type->second.dtype))
      return make_error("output '{}' is no floating tensor of known shape: a loss cannot read it", step_.scores);
    TensorType label = type->second;
    if (loss_.node.op == "CrossEntropyLoss" || loss_.node.op == "NegativeLogLikelihoodLoss") {
      if (label.shape->size() < 2)
        return make_error("output '{}' has shape {}: a loss over classes needs [batch, classes, ...]", step_.scores,
                          to_string(*label.shape));
      label.dtype = DType::i64;
      label.shape->erase(label.shape->begin() + 1);
    }
    graph_.inputs.push_back(value_of(kLabel, label));
    Node node = loss_.node;
    node.id = kLoss;
    node.inputs = {step_.scores, kLabel};
    node.outputs = {kLoss};
    if (!node.domain.empty()) graph_.opsets[node.domain] = graph_.opset();
    graph_.nodes.push_back(std::move(node));
    graph_.outputs.insert(graph_.outputs.begin(), value_of(kLoss, {type->second.dtype, Shape()}));
    return {};
  }

  void add_updates() {
    graph_.opsets[std::string(kTrainingDomain)] = graph_.opset();
    graph_.inputs.push_back(value_of(kLearningRate, {DType::f32, Shape()}));
    graph_.inputs.push_back(value_of(kStep, {DType::i64, Shape()}));
    std::map<std::string, std::string> gradients = step_.training.training.gradients;
    if (optimiser_.clip_norm) clip(gradients);
    for (const std::string& parameter : step_.parameters) {
      Node node = optimiser_.node;
      node.id = parameter + "/update";
      node.inputs = {kLearningRate, kStep, parameter, gradients.at(parameter)};
      node.outputs = {parameter + "/new"};
      const Tensor& value = graph_.initialisers.at(parameter);
      for (const std::string& state : optimiser_.states) {
        if (state.empty()) {
          node.inputs.emplace_back();
          node.outputs.emplace_back();
          continue;
        }
        const std::string name = parameter + "/" + state;
        node.inputs.push_back(name);
        node.outputs.push_back(name + "/new");
        graph_.initialisers[name] = Tensor::zeros(value.dtype(), value.shape());
        carry(name, name + "/new");
      }
      carry(parameter, parameter + "/new");
      graph_.nodes.push_back(std::move(node));
    }
  }

  void clip(std::map<std::string, std::string>& gradients) {
    Node node;
    node.id = "clip_gradients";
    node.op = "ClipGradientNorm";
    node.domain = kTrainingDomain;
    node.attributes["max_norm"] = static_cast<float>(*optimiser_.clip_norm);
    for (const std::string& parameter : step_.parameters) {
      std::string& gradient = gradients.at(parameter);
      node.inputs.push_back(gradient);
      gradient += "/clipped";
      node.outputs.push_back(gradient);
    }
    node.outputs.emplace_back("gradient_norm");
    graph_.nodes.push_back(std::move(node));
  }

  Graph graph_;
  const LossSpec& loss_;
  const OptimiserSpec& optimiser_;
  TypeMap types_;
  StepGraph step_;
};

}  // namespace

std::string loss_table() { return table(kLosses, ""); }
std::string optimiser_table() { return table(kOptimisers, " lr clip_norm"); }

Expected<LossSpec> parse_loss(const std::string& text) {
  LossSpec spec;
  spec.text = text;
  OPDIFF_TRY(spec.node, parse(text, "loss", kLosses, [](const Option&) -> Expected<bool> { return false; }));
  const auto reduction = spec.node.attributes.find("reduction");
  const auto* given = reduction == spec.node.attributes.end() ? nullptr : std::get_if<std::string>(&reduction->second);
  if (given && *given == "none")
    return make_error("loss '{}': a step needs one number, reduction=none gives many", text);
  return spec;
}

Expected<OptimiserSpec> parse_optimiser(const std::string& text) {
  OptimiserSpec spec;
  spec.text = text;
  const auto take = [&](const Option& option) -> Expected<bool> {
    if (option.key != "lr" && option.key != "clip_norm") return false;
    OPDIFF_TRY(const double value, number(option.value));
    if (!(value > 0)) return make_error("'{}' is not above 0", option.value);
    if (option.key == "lr")
      spec.learning_rate = value;
    else
      spec.clip_norm = value;
    return true;
  };
  OPDIFF_TRY(spec.node, parse(text, "optimiser", kOptimisers, take));
  spec.states = states_of(spec.node);
  return spec;
}

Expected<StepGraph> make_step(const Graph& model, const LossSpec& loss, const OptimiserSpec& optimiser) {
  return StepMaker(model, loss, optimiser).run();
}

Expected<TensorMap> step_inputs(const StepGraph& step, const OptimiserSpec& optimiser, const TensorMap& given,
                                std::uint64_t seed) {
  TensorMap inputs = step.initial;
  for (const std::string& parameter : step.parameters)
    for (const std::string& state : optimiser.states) {
      if (state.empty()) continue;
      const std::string name = parameter + "/" + state;
      Rng rng(seed, "state " + name);
      const Tensor& like = inputs.at(name);
      std::vector<double> values(static_cast<std::size_t>(like.size()));
      // Averages of gradients of about 0.01; those of squares are above the squares of those averages.
      const bool squares = state != "exp_avg" && state != "grad_avg" && state != "momentum_buffer";
      for (double& v : values) v = squares ? 1e-4 * (1 + std::fabs(rng.normal())) : 1e-3 * rng.uniform(-3, 3);
      inputs[name] = Tensor::from_doubles(like.dtype(), like.shape(), values);
    }
  inputs[kLearningRate] = Tensor::scalar_like(DType::f32, optimiser.learning_rate);
  inputs[kStep] = Tensor::scalar_like(DType::i64, 3);
  const TensorType& type = step.types.at(kLabel);
  if (const auto label = given.find(kLabel); label != given.end()) {
    if (label->second.shape() != *type.shape)
      return make_error("'{}' has shape {}, the loss needs {}", kLabel, to_string(label->second.shape()),
                        to_string(*type.shape));
    inputs[kLabel] = Tensor::from_doubles(type.dtype, *type.shape, label->second.to_doubles());
    return inputs;
  }
  Rng rng(seed, kLabel);
  std::vector<double> values(static_cast<std::size_t>(element_count(*type.shape)));
  const std::int64_t classes = is_integer(type.dtype) ? (*step.types.at(step.scores).shape)[1] : 0;
  for (double& v : values) v = classes > 0 ? static_cast<double>(rng.integer(0, classes - 1)) : rng.uniform();
  inputs[kLabel] = Tensor::from_doubles(type.dtype, *type.shape, values);
  return inputs;
}

Expected<TrainingGraph> make_gradient(const Graph& model, const TypeMap& types) {
  const std::vector<std::string> wrt = differentiable_tensors(model, types);
  std::map<std::string, std::string> cotangents;
  for (const ValueInfo& output : model.outputs)
    if (const auto type = types.find(output.name); type != types.end() && is_float(type->second.dtype))
      cotangents[output.name] = output.name + "/cotangent";
  if (wrt.empty() || cotangents.empty())
    return make_error("nothing is differentiable: no floating output depends on a floating input or weight{}",
                      unknown_operator_hint(model));
  return differentiate(model, types, cotangents, wrt);
}

}  // namespace opdiff
