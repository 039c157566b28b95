#include "ops/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace opdiff {
namespace {

constexpr int kOpsets[] = {7, 9, 11, 13, 15, 17, 18, 19, 21, 22};

double draw(Rng& rng, Distribution distribution, const Format& format, double scale, double mean, std::int64_t index,
            std::int64_t count) {
  switch (distribution) {
    case Distribution::normal: return scale * rng.normal();
    case Distribution::positive: return scale * std::fabs(rng.normal());
    case Distribution::shifted: return scale * (mean + rng.normal());
    case Distribution::sparse: return scale * std::max(rng.normal(), 0.0);
    case Distribution::exponents: {
      const int low = std::max(format.min_exponent, -300), high = std::min(format.max_exponent, 300);
      const double magnitude = std::ldexp(1 + rng.uniform(), static_cast<int>(rng.integer(low, high - 1)));
      return rng.chance(0.5) ? magnitude : -magnitude;
    }
    case Distribution::subnormal: return format.lambda() * rng.uniform(-3, 3);
    case Distribution::constant: return scale * mean;
    case Distribution::ramp:
      return scale * (2.0 * static_cast<double>(index) / static_cast<double>(std::max<std::int64_t>(count - 1, 1)) - 1);
    case Distribution::ties: return 0.5 * static_cast<double>(rng.integer(-2, 2));
    case Distribution::integers: return static_cast<double>(rng.integer(-8, 8));
    case Distribution::boundaries: {
      const double values[] = {0.0,
                               -0.0,
                               1.0,
                               -1.0,
                               format.max_finite(),
                               -format.max_finite(),
                               format.lambda(),
                               format.eta(),
                               1 + 2 * format.unit_roundoff(),
                               1 - format.unit_roundoff(),
                               rng.normal(),
                               10 * rng.normal()};
      return rng.pick(values);
    }
  }
  return 0;
}

}  // namespace

std::string_view to_string(Distribution distribution) {
  static constexpr std::string_view kNames[kDistributionCount] = {"normal",    "positive",  "shifted",   "sparse",
                                                                  "exponents", "subnormal", "constant",  "ramp",
                                                                  "ties",      "integers",  "boundaries"};
  return kNames[static_cast<int>(distribution)];
}

std::vector<const Tensor*> Sample::pointers() const {
  std::vector<const Tensor*> result;
  for (const auto& input : inputs) result.push_back(input ? &*input : nullptr);
  return result;
}

SampleContext::SampleContext(std::string_view op, DType dtype, std::uint64_t seed, std::uint64_t index)
    : rng_(seed, std::string(op) + ":" + std::string(dtype_name(dtype)), index),
      dtype_(dtype),
      distribution_(static_cast<Distribution>(index % kDistributionCount)),
      opset_(rng_.chance(0.5) ? 17 : rng_.pick(kOpsets)) {
  // bf16 entered the elementwise operators, pools and products with opset 13.
  if (dtype == DType::bf16) opset_ = std::max(opset_, 13);
}

std::int64_t SampleContext::extent(std::int64_t low, std::int64_t high) {
  if (rng_.chance(0.15)) return low;
  const double bias = rng_.uniform();
  return std::min(high, low + static_cast<std::int64_t>(bias * bias * static_cast<double>(high - low + 1)));
}

Shape SampleContext::shape(int min_rank, int max_rank, std::int64_t max_extent) {
  Shape shape(static_cast<std::size_t>(rng_.integer(min_rank, max_rank)));
  for (auto& dimension : shape) dimension = extent(1, max_extent);
  return shape;
}

Shape SampleContext::shape_or_empty(int min_rank, int max_rank, std::int64_t max_extent) {
  Shape result = shape(min_rank, max_rank, max_extent);
  if (!result.empty() && rng_.chance(0.02))
    result[static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(result.size()) - 1))] = 0;
  return result;
}

Tensor SampleContext::elements(const Shape& shape) {
  Tensor result = tensor(shape);
  if (!is_float(dtype_) || !rng_.chance(0.03)) return result;
  static constexpr double kNonFinite[] = {std::numeric_limits<double>::quiet_NaN(),
                                          std::numeric_limits<double>::infinity(),
                                          -std::numeric_limits<double>::infinity()};
  std::vector<double> values = result.to_doubles();
  for (double& v : values)
    if (rng_.chance(1.0 / 3)) v = rng_.pick(kNonFinite);
  return Tensor::from_doubles(dtype_, shape, values);
}

Tensor SampleContext::tensor(DType dtype, const Shape& shape) {
  const std::int64_t count = element_count(shape);
  std::vector<double> values(static_cast<std::size_t>(count));
  if (!is_float(dtype)) {
    const bool is_unsigned = dtype == DType::boolean || is_unsigned_integer(dtype);
    for (double& v : values)
      v = dtype == DType::boolean ? static_cast<double>(rng_.integer(0, 1))
                                  : static_cast<double>(rng_.integer(is_unsigned ? 0 : -100, 100));
    return Tensor::from_doubles(dtype, shape, values);
  }
  const Format& format = format_of(dtype);
  const double scale = std::pow(10.0, rng_.uniform(-1.5, 1.5));
  const double mean = rng_.uniform(-100, 100);
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = draw(rng_, distribution_, format, scale, mean, i, count);
  return Tensor::from_doubles(dtype, shape, values);
}

Tensor SampleContext::weights(const Shape& shape, std::int64_t fan_in) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  const double scale = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(fan_in, 1)));
  for (double& v : values)
    v = distribution_ == Distribution::integers ? static_cast<double>(rng_.integer(-3, 3)) : scale * rng_.normal();
  return Tensor::from_doubles(dtype_, shape, values);
}

Tensor SampleContext::positive(const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) v = std::pow(10.0, rng_.uniform(-1, 1));
  return Tensor::from_doubles(dtype_, shape, values);
}

Tensor SampleContext::int64s(const std::vector<std::int64_t>& values) {
  return Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(values.size())}, values);
}

Tensor SampleContext::scalar_int64(std::int64_t value) { return Tensor::from_int64s(DType::i64, {}, {&value, 1}); }

Sample SampleContext::make(std::string_view op, std::vector<std::optional<Tensor>> inputs, int outputs) {
  Sample sample;
  sample.node.id = "node";
  sample.node.op = op;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    sample.node.inputs.push_back(inputs[k] ? "x" + std::to_string(k) : "");
  for (int k = 0; k < outputs; ++k) sample.node.outputs.push_back("y" + std::to_string(k));
  sample.initialiser.assign(inputs.size(), false);
  sample.inputs = std::move(inputs);
  sample.opset = opset_;
  sample.note = to_string(distribution_);
  return sample;
}

Sample refused_sample(std::string_view op, std::vector<std::optional<Tensor>> inputs,
                      std::map<std::string, Attribute> attributes, std::string why, int opset) {
  SampleContext context(op, DType::f32, 0, 0);
  Sample sample = context.make(op, std::move(inputs));
  sample.node.attributes = std::move(attributes);
  sample.note = std::move(why);
  sample.opset = opset;
  return sample;
}

}  // namespace opdiff
