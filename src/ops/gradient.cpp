#include "ops/gradient.h"

#include <set>

namespace opdiff {
namespace {

int cotangents_of(const Call& call) { return static_cast<int>(call.integer(kCotangents, 1)); }

Node forward_node(const Call& call) {
  Node node = call.node();
  node.domain.clear();
  node.attributes.erase(kCotangents);
  const auto cotangents = static_cast<std::size_t>(cotangents_of(call));
  const std::size_t inputs = static_cast<std::size_t>(call.input_count()) - cotangents;
  node.outputs.clear();
  for (std::size_t j = 0; j < cotangents; ++j)
    node.outputs.push_back(call.has(static_cast<int>(inputs + j)) ? "y" + std::to_string(j) : "");
  node.inputs.resize(inputs);
  return node;
}

bool contains(std::span<const int> differentiable, int k) {
  return differentiable.empty() || std::find(differentiable.begin(), differentiable.end(), k) != differentiable.end();
}

}  // namespace

GradientCall::GradientCall(const Call& call)
    : call_(call), node_(forward_node(call)), forward_(call.head(node_, static_cast<int>(node_.inputs.size()))) {}

TensorType GradientCall::cotangent_type(int output) const {
  const int k = input_count() + output;
  return {call_.dtype(k), call_.has_shape(k) ? std::optional(call_.shape(k)) : std::nullopt};
}

std::string display_name(const MetaOperator& op) {
  return std::string(op.name) + (op.domain == kGradientDomain ? " gradient" : "");
}

bool is_differentiable(const MetaOperator& op, int input) { return op.gradient && contains(op.differentiable, input); }

namespace gradient_detail {

Expected<void> check_counts(const Call& call, const Arity& inputs, const Arity& outputs) {
  const std::int64_t cotangents = call.integer(kCotangents, 1);
  if (cotangents < 1 || cotangents > std::max(outputs.max, 1))
    return make_error("attribute '{}' is {}, expected 1 to {}", kCotangents, cotangents, std::max(outputs.max, 1));
  const std::int64_t count = call.input_count() - cotangents;
  if (count < inputs.min || (inputs.max >= 0 && count > inputs.max))
    return make_error("{} inputs and {} cotangents given, the operator takes {} to {} inputs", count, cotangents,
                      inputs.min, inputs.max < 0 ? std::string("any number of") : std::to_string(inputs.max));
  return {};
}

Expected<Types> infer(const GradientCall& gradient, const Expected<Types>& outputs,
                      std::span<const int> differentiable) {
  if (!outputs) return tl::unexpected(outputs.error());
  bool any = false;
  for (int j = 0; j < gradient.cotangent_count(); ++j) {
    if (!gradient.has_cotangent(j)) continue;
    any = true;
    const TensorType given = gradient.cotangent_type(j);
    if (static_cast<std::size_t>(j) >= outputs->size() || !is_float(given.dtype))
      return make_error("cotangent {} has type {}: the operator has no such floating output", j, to_string(given));
    const TensorType& expected = (*outputs)[static_cast<std::size_t>(j)];
    if (given.dtype != expected.dtype || (expected.shape && given.shape && *given.shape != *expected.shape))
      return make_error("cotangent {} has type {}, the output has type {}", j, to_string(given), to_string(expected));
  }
  if (!any) return make_error("no cotangent is given");
  const Call& forward = gradient.forward();
  Types types;
  for (int k = 0; k < forward.input_count(); ++k) {
    const bool exists = forward.has(k) && is_float(forward.dtype(k)) && contains(differentiable, k);
    if (gradient.wants(k) && !exists)
      return make_error("output {} is wanted, but input {} {}", k, k, forward.has(k) ? "has no gradient" : "is absent");
    types.push_back(forward.has(k) ? TensorType{forward.dtype(k), forward.shape(k)}
                                   : TensorType{forward.dtype(0), Shape{0}});
  }
  return types;
}

Sample add_cotangents(SampleContext& context, Sample sample, const Types& outputs,
                      std::span<const int> differentiable) {
  Rng& rng = context.rng();
  Node& node = sample.node;
  node.domain = kGradientDomain;
  const auto inputs = node.inputs.size();
  const auto output_count = node.outputs.size();
  if (output_count > 1) node.attributes[kCotangents] = static_cast<std::int64_t>(output_count);
  // Cotangents of the sample's own distribution, or ordinary numbers: both extremes at once say little.
  const bool alike = rng.chance(0.5);
  bool any = false;
  for (std::size_t j = 0; j < output_count; ++j) {
    const TensorType& type = outputs[j];
    const bool given = !node.outputs[j].empty() && is_float(type.dtype) && (!any || rng.chance(0.8));
    any = any || given;
    node.inputs.push_back(given ? "dy" + std::to_string(j) : "");
    sample.initialiser.push_back(false);
    if (!given)
      sample.inputs.emplace_back();
    else if (alike)
      sample.inputs.emplace_back(context.tensor(type.dtype, *type.shape));
    else
      sample.inputs.emplace_back(
          Tensor::from_doubles(type.dtype, *type.shape, context.weights(*type.shape, 1).to_doubles()));
  }
  node.outputs.clear();
  std::vector<std::size_t> possible;
  for (std::size_t k = 0; k < inputs; ++k)
    if (sample.inputs[k] && is_float(sample.inputs[k]->dtype()) && contains(differentiable, static_cast<int>(k)))
      possible.push_back(k);
  const bool all = rng.chance(0.8);
  const std::size_t one = rng.pick(possible);
  for (std::size_t k = 0; k < inputs; ++k) {
    const bool wanted = std::find(possible.begin(), possible.end(), k) != possible.end() && (all || k == one);
    node.outputs.push_back(wanted ? "dx" + std::to_string(k) : "");
  }
  while (node.outputs.back().empty()) node.outputs.pop_back();
  return sample;
}

std::vector<Sample> refused(const Sample& good) {
  std::vector<Sample> samples;
  const auto cotangent =
      static_cast<std::size_t>(std::find_if(good.node.inputs.begin(), good.node.inputs.end(),
                                            [](const std::string& name) { return name.starts_with("dy"); }) -
                               good.node.inputs.begin());
  const auto with = [&](const Tensor& other, std::string why) {
    Sample s = good;
    s.inputs[cotangent] = other;
    s.note = std::move(why);
    samples.push_back(std::move(s));
  };
  Shape shape = good.inputs[cotangent]->shape();
  shape.push_back(2);
  with(Tensor::zeros(DType::f32, shape), "cotangent 0");
  with(Tensor::zeros(DType::f64, good.inputs[cotangent]->shape()), "cotangent 0");
  Sample none = good;
  none.node.attributes[kCotangents] = std::int64_t{0};
  none.note = kCotangents;
  samples.push_back(std::move(none));
  return samples;
}

std::string_view documentation(std::string_view op, std::string_view own) {
  static std::set<std::string> texts;  // filled while the table is built
  return *texts
              .insert(fmt::format("The gradient (vector-Jacobian product) of {}: the cotangents of its inputs from "
                                  "those of its outputs.{}{}",
                                  op, own.empty() ? "" : "\n\n", own))
              .first;
}

template <class T>
void scatter(GradientFrame<T>& frame, const Movement& movement) {
  const auto from = frame.cotangent();
  std::vector<std::span<T>> to(static_cast<std::size_t>(frame.gradient_call().input_count()));
  for (int k = 0; k < frame.gradient_call().input_count(); ++k)
    if (frame.wants(k)) to[static_cast<std::size_t>(k)] = frame.gradient(k);
  if (movement.source.empty() && from.size() == to[0].size()) {
    for (std::size_t i = 0; i < to[0].size(); ++i) to[0][i] = T(from[i]);
    return;
  }
  // Terms of each element, in order of the output.
  std::vector<std::vector<std::int64_t>> first(to.size());
  for (std::size_t k = 0; k < to.size(); ++k) first[k].assign(to[k].size() + 1, 0);
  const auto input_of = [&](std::size_t i) { return movement.which.empty() ? 0 : movement.which[i]; };
  const auto each = [&](auto visit) {
    for (std::size_t i = 0; i < movement.source.size(); ++i) {
      const auto k = static_cast<std::size_t>(input_of(i));
      if (movement.source[i] >= 0 && !to[k].empty()) visit(i, k, static_cast<std::size_t>(movement.source[i]));
    }
  };
  each([&](std::size_t, std::size_t k, std::size_t at) { ++first[k][at + 1]; });
  std::vector<std::vector<std::size_t>> terms(to.size());
  for (std::size_t k = 0; k < to.size(); ++k) {
    for (std::size_t i = 1; i < first[k].size(); ++i) first[k][i] += first[k][i - 1];
    terms[k].resize(static_cast<std::size_t>(first[k].back()));
  }
  std::vector<std::vector<std::int64_t>> next = first;
  each([&](std::size_t i, std::size_t k, std::size_t at) { terms[k][static_cast<std::size_t>(next[k][at]++)] = i; });
  for (std::size_t k = 0; k < to.size(); ++k)
    for (std::size_t at = 0; at < to[k].size(); ++at) {
      Sum<T> sum;
      for (auto t = first[k][at]; t < first[k][at + 1]; ++t) sum.add(T(from[terms[k][static_cast<std::size_t>(t)]]));
      to[k][at] = sum.result();
    }
}

template void scatter(GradientFrame<double>&, const Movement&);
template void scatter(GradientFrame<Quad>&, const Movement&);
template void scatter(GradientFrame<Enclosure<double>>&, const Movement&);
template void scatter(GradientFrame<Enclosure<Quad>>&, const Movement&);
template void scatter(GradientFrame<Working>&, const Movement&);
template void scatter(GradientFrame<Dual>&, const Movement&);

}  // namespace gradient_detail

std::span<const MetaOperator* const> all_gradients() {
  static const std::vector<const MetaOperator*> table = [] {
    std::vector<const MetaOperator*> gradients;
    for (const MetaOperator* op : all_operators())
      if (op->gradient) gradients.push_back(op->gradient);
    return gradients;
  }();
  return table;
}

}  // namespace opdiff
