#include "forms/kink.h"

#include <algorithm>
#include <cmath>

#include "reference/evaluate.h"

namespace opdiff {
namespace {

double bias_of(std::vector<double> values, Rng& rng) {
  std::sort(values.begin(), values.end());
  const std::size_t first = values.size() / 10, last = values.size() - 1 - first;
  double widest = 0, middle = 0;
  for (std::size_t k = first; k < last; ++k)
    if (const double gap = values[k + 1] - values[k]; gap > widest) {
      widest = gap;
      middle = (values[k] + values[k + 1]) / 2;
    }
  if (widest == 0) return (rng.chance(0.5) ? 1 : -1) - values[first];  // all the same
  return -middle;
}

}  // namespace

Tensor approximately(std::string_view op, const std::vector<Tensor>& inputs,
                     const SideBuilder::Attributes& attributes) {
  Node node;
  node.id = node.op = std::string(op);
  node.outputs = {"y"};
  node.attributes = attributes;
  std::vector<Tensor> single;
  std::vector<const Tensor*> given;
  for (const Tensor& input : inputs)
    single.push_back(Tensor::from_doubles(DType::f32, input.shape(), input.to_doubles()));
  for (const Tensor& input : single) {
    node.inputs.push_back(fmt::format("x{}", given.size()));
    given.push_back(&input);
  }
  const auto outputs = evaluate_node(node, kFormOpset, given);
  OPDIFF_CHECK(outputs.has_value());
  return (*outputs)[0];
}

std::vector<double> bias_beside_kink(const std::vector<double>& z, const Shape& shape, Rng& rng) {
  const auto channels = static_cast<std::size_t>(shape[1]), n = static_cast<std::size_t>(shape[0]);
  const std::size_t plane = z.size() / n / channels;
  std::vector<double> bias;
  for (std::size_t c = 0; c < channels; ++c) {
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i) {
      const auto start = z.begin() + static_cast<std::ptrdiff_t>((i * channels + c) * plane);
      values.insert(values.end(), start, start + static_cast<std::ptrdiff_t>(plane));
    }
    bias.push_back(bias_of(std::move(values), rng));
  }
  return bias;
}

std::vector<double> moved_from_kink(const std::vector<double>& z, std::vector<double> addend) {
  for (std::size_t i = 0; i < z.size(); ++i)
    if (std::fabs(z[i] + addend[i]) < 0.25) addend[i] += z[i] + addend[i] < 0 ? -0.25 : 0.25;
  return addend;
}

}  // namespace opdiff
