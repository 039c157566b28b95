#include "forms/builder.h"

#include <algorithm>
#include <cmath>

#include "graph/validate.h"
#include "reference/evaluate.h"

namespace opdiff {
namespace {

constexpr int kDistributions = 6;

// A number of ordinary size: products and sums of a few hundred of them stay far from the ends of every format.
double draw_number(int distribution, std::int64_t index, std::int64_t count, Rng& rng) {
  switch (distribution) {
    case 0:
    case 1: return rng.normal();
    case 2: return rng.uniform(-1, 1) + 1;  // all of one sign
    case 3: return rng.chance(0.5) ? 0 : rng.normal();
    case 4: return static_cast<double>(rng.integer(-3, 3));
    default: return count > 1 ? -1 + 2 * static_cast<double>(index) / static_cast<double>(count - 1) : 1;
  }
}

Expected<void> declare_outputs(Graph& graph, const std::map<std::string, TensorType>& types) {
  for (ValueInfo& output : graph.outputs) {
    const auto found = types.find(output.name);
    if (found == types.end()) return make_error("the type of '{}' is not known", output.name);
    const TensorType& type = found->second;
    output.dtype = type.dtype;
    if (!type.shape) continue;
    output.shape.emplace();
    for (const std::int64_t extent : *type.shape) output.shape->push_back({extent, ""});
  }
  return {};
}

}  // namespace

const Form* find_form(std::string_view name) {
  for (const Form* form : all_forms())
    if (form->name == name) return form;
  return nullptr;
}

std::string to_string(const Parameters& parameters) {
  std::string text;
  for (const auto& [name, value] : parameters) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

Expected<void> check_parameters(const Form& form, const Parameters& parameters) {
  for (const auto& [name, value] : parameters) {
    const auto known = std::find_if(form.parameters.begin(), form.parameters.end(),
                                    [&, &name = name](const ParameterSpec& p) { return p.name == name; });
    if (known == form.parameters.end()) {
      std::string names;
      for (const ParameterSpec& p : form.parameters) names += fmt::format("{}{}", names.empty() ? "" : " ", p.name);
      return make_error("{}: no parameter '{}'; it has: {}", form.name, name, names);
    }
    // What counts something may be larger than what is drawn; an exponent may not.
    constexpr std::int64_t kMost = 4096;
    const bool is_exponent = known->low < 0;
    const std::int64_t least = is_exponent ? known->low : std::min<std::int64_t>(known->low, 1);
    if (value < least || value > (is_exponent ? known->high : std::max(known->high, kMost)))
      return make_error("{}: {}={} is out of range ({})", form.name, name, value, known->documentation);
  }
  for (const Condition& condition : form.conditions)
    if (!condition.holds(parameters))
      return make_error("{} needs {}; given {}", form.name, condition.text, to_string(parameters));
  return {};
}

Expected<Parameters> draw_parameters(const Form& form, const FormRegion& region, const Parameters& fixed, Rng& rng) {
  constexpr int kTries = 2000;
  Expected<void> met;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Parameters parameters;
    for (const ParameterSpec& p : form.parameters) {
      const std::int64_t drawn = rng.integer(p.low, p.high);  // always: fixing one does not move the others
      const auto in_region = region.fixed.find(p.name);
      parameters[std::string(p.name)] = in_region == region.fixed.end() ? drawn : in_region->second;
    }
    for (const auto& [name, value] : fixed) parameters[name] = value;
    met = check_parameters(form, parameters);
    if (met) return parameters;
  }
  return tl::unexpected<Error>(met.error());
}

Parameters timed_parameters(const Form& form, const Parameters& fixed) {
  Parameters parameters;
  for (const ParameterSpec& p : form.parameters) parameters[std::string(p.name)] = p.timed;
  for (const auto& [name, value] : fixed) parameters[name] = value;
  return parameters;
}

Side& SideBuilder::side() { return form_.case_.sides[index_]; }

std::string SideBuilder::node(std::string_view op, std::vector<std::string> inputs, Attributes attributes,
                              std::string_view domain) {
  return nodes(op, std::move(inputs), 1, std::move(attributes), domain)[0];
}

std::vector<std::string> SideBuilder::nodes(std::string_view op, std::vector<std::string> inputs, int outputs,
                                            Attributes attributes, std::string_view domain) {
  Graph& graph = side().graph;
  Node node;
  // "conv", "conv_2": by operator, so that a fault can be planted in one of them.
  std::string stem;
  for (const char c : op) stem += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto before = std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op == op; });
  node.id = before == 0 ? stem : fmt::format("{}_{}", stem, before + 1);
  node.op = op;
  node.domain = domain;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  for (int k = 0; k < outputs; ++k) node.outputs.push_back(k == 0 ? node.id + "_y" : fmt::format("{}_y{}", node.id, k));
  if (!domain.empty()) graph.opsets[std::string(domain)] = form_.opset();
  graph.nodes.push_back(node);
  return node.outputs;
}

std::string SideBuilder::constant(std::string_view name, Tensor value) {
  auto& initialisers = side().graph.initialisers;
  const auto taken = [&](const std::string& candidate) {
    return initialisers.count(candidate) || form_.weights_.count(candidate) || form_.case_.inputs.count(candidate);
  };
  std::string unique(name);
  for (int k = 2; taken(unique); ++k) unique = fmt::format("{}_{}", name, k);
  initialisers[unique] = std::move(value);
  return unique;
}

std::string SideBuilder::folded(std::string_view name, Shape shape, const std::vector<double>& values) {
  const std::string given = constant(name, Tensor::from_doubles(form_.dtype(), std::move(shape), values));
  side().unrounded[given] = values;
  return given;
}

std::string SideBuilder::number(double value) {
  const Tensor rounded = Tensor::scalar_like(form_.dtype(), value);
  return rounded.at(0) == value ? constant("number", rounded) : folded("number", {}, {value});
}

std::string SideBuilder::integers(const std::vector<std::int64_t>& values) {
  return constant("integers", Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(values.size())}, values));
}

std::string SideBuilder::reshape(const std::string& x, const Shape& shape) {
  return node("Reshape", {x, integers(shape)});
}

std::string SideBuilder::transpose(const std::string& x, const std::vector<std::int64_t>& perm) {
  return node("Transpose", {x}, {{"perm", perm}});
}

std::string SideBuilder::slice(const std::string& x, std::int64_t axis, std::int64_t start, std::int64_t end,
                               std::int64_t step) {
  return node("Slice", {x, integers({start}), integers({end}), integers({axis}), integers({step})});
}

std::string SideBuilder::pad(const std::string& x, const std::vector<std::int64_t>& pads, const std::string& value) {
  std::vector<std::string> inputs{x, integers(pads)};
  if (!value.empty()) inputs.push_back(value);
  return node("Pad", std::move(inputs));
}

std::string SideBuilder::concat(std::vector<std::string> parts, std::int64_t axis) {
  return parts.size() == 1 ? parts[0] : node("Concat", std::move(parts), {{"axis", axis}});
}

std::string SideBuilder::reduce(std::string_view op, const std::string& x, const std::vector<std::int64_t>& axes,
                                bool keepdims) {
  const Attribute keep = std::int64_t{keepdims};
  if (op == "ReduceSum" || form_.opset() >= 18) return node(op, {x, integers(axes)}, {{"keepdims", keep}});
  return node(op, {x}, {{"axes", axes}, {"keepdims", keep}});
}

std::string SideBuilder::sum(const std::vector<std::string>& parts) {
  std::string total = parts[0];
  for (std::size_t k = 1; k < parts.size(); ++k) total = node("Add", {total, parts[k]});
  return total;
}

void SideBuilder::output(const std::string& value) {
  Graph& graph = side().graph;
  const std::string name = graph.outputs.empty() ? "y" : fmt::format("y{}", graph.outputs.size());
  for (Node& node : graph.nodes) {
    std::replace(node.outputs.begin(), node.outputs.end(), value, name);
    std::replace(node.inputs.begin(), node.inputs.end(), value, name);
  }
  graph.outputs.push_back({name, form_.dtype(), std::nullopt});
}

FormBuilder::FormBuilder(const Form& form, const Parameters& parameters, DType dtype, std::uint64_t seed, bool gradient)
    : rng_(seed, form.name), gradient_(gradient), distribution_(static_cast<int>(rng_.integer(0, kDistributions - 1))) {
  case_.form = &form;
  case_.parameters = parameters;
  case_.dtype = dtype;
  case_.seed = seed;
}

std::int64_t FormBuilder::operator[](std::string_view parameter) const {
  const auto found = case_.parameters.find(parameter);
  OPDIFF_CHECK(found != case_.parameters.end());
  return found->second;
}

Tensor FormBuilder::draw(const Shape& shape, Values values) {
  std::vector<double> numbers(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = values == Values::positive ? rng_.uniform(0.5, 2)
                                            : draw_number(distribution_, static_cast<std::int64_t>(i),
                                                          static_cast<std::int64_t>(numbers.size()), rng_);
  if (values == Values::nonzero) std::replace(numbers.begin(), numbers.end(), 0.0, 1.0);
  return Tensor::from_doubles(dtype(), shape, numbers);
}

std::string FormBuilder::share(std::string_view name, Tensor value, bool initialiser) {
  std::string given(name);
  (initialiser && !gradient_ ? weights_ : case_.inputs)[given] = std::move(value);
  return given;
}

std::string FormBuilder::input(std::string_view name, const Shape& shape, Values values) {
  return share(name, draw(shape, values), false);
}

std::string FormBuilder::input(std::string_view name, Tensor value) { return share(name, std::move(value), false); }

std::string FormBuilder::parameter(std::string_view name, Tensor value) { return share(name, std::move(value), true); }

std::string FormBuilder::parameter(std::string_view name, const Shape& shape, Values values) {
  return share(name, draw(shape, values), true);
}

std::string FormBuilder::weight(std::string_view name, const Shape& shape, std::int64_t fan_in) {
  std::vector<double> numbers(static_cast<std::size_t>(element_count(shape)));
  const double scale = distribution_ == 4 ? 1 : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(fan_in, 1)));
  for (double& number : numbers)
    number = distribution_ == 4 ? static_cast<double>(rng_.integer(-2, 2)) : scale * rng_.normal();
  return share(name, Tensor::from_doubles(dtype(), shape, numbers), true);
}

const Tensor& FormBuilder::tensor(const std::string& name) const {
  const auto weight = weights_.find(name);
  return weight == weights_.end() ? case_.inputs.at(name) : weight->second;
}

SideBuilder FormBuilder::side(std::string_view name) {
  Side side;
  side.name = name;
  side.graph.name = std::string(case_.form->name);
  side.graph.opsets = {{"", opset()}};
  case_.sides.push_back(std::move(side));
  return SideBuilder(*this, case_.sides.size() - 1);
}

Expected<FormCase> FormBuilder::take() {
  for (Side& side : case_.sides) {
    Graph& graph = side.graph;
    std::map<std::string, TensorType> types;
    for (const auto& [name, tensor] : case_.inputs) {
      ValueInfo info{name, tensor.dtype(), std::vector<Dimension>()};
      for (const std::int64_t extent : tensor.shape()) info.shape->push_back({extent, ""});
      graph.inputs.push_back(info);
      types[name] = {tensor.dtype(), tensor.shape()};
    }
    for (const Node& node : graph.nodes)
      for (const std::string& name : node.inputs)
        if (const auto weight = weights_.find(name); weight != weights_.end())
          graph.initialisers.insert({name, weight->second});
    // Inputs that this side does not read would be refused by some backends.
    const auto unread = [&](const ValueInfo& info) {
      return std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
        return std::find(node.inputs.begin(), node.inputs.end(), info.name) != node.inputs.end();
      });
    };
    graph.inputs.erase(std::remove_if(graph.inputs.begin(), graph.inputs.end(), unread), graph.inputs.end());
    for (auto it = types.begin(); it != types.end();)
      it = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](const auto& i) { return i.name == it->first; })
               ? std::next(it)
               : types.erase(it);
    if (const auto valid = validate(graph); !valid) return with_context(side.name, valid.error());
    const auto inferred = infer_types(graph, types);
    if (!inferred) return with_context(fmt::format("{}: {}", case_.form->name, side.name), inferred.error());
    OPDIFF_RETURN_IF_ERROR(declare_outputs(graph, *inferred));
  }
  return std::move(case_);
}

Expected<FormCase> build_case(const Form& form, const Parameters& parameters, DType dtype, std::uint64_t seed,
                              bool gradient) {
  OPDIFF_RETURN_IF_ERROR(check_parameters(form, parameters));
  FormBuilder builder(form, parameters, dtype, seed, gradient);
  form.build(builder);
  return builder.take();
}

}  // namespace opdiff
