#include "forms/folding.h"

#include <cmath>

#include "forms/kink.h"

namespace opdiff {

Normalisation::Normalisation(FormBuilder& form, std::int64_t channels, const Tensor* before_relu) {
  const std::string scale = form.parameter("scale", {channels}, Values::positive);
  const std::string mean = form.parameter("mean", {channels});
  const std::string variance = form.parameter("variance", {channels}, Values::positive);
  const std::vector<double> scales = form.tensor(scale).to_doubles(), means = form.tensor(mean).to_doubles(),
                            variances = form.tensor(variance).to_doubles();
  for (std::size_t k = 0; k < scales.size(); ++k) {
    scale_.push_back(scales[k] / std::sqrt(variances[k] + static_cast<double>(kEpsilon)));
    shift_.push_back(-scale_[k] * means[k]);
  }
  std::string bias;
  if (before_relu == nullptr) {
    bias = form.parameter("bias", {channels});
  } else {
    std::vector<double> z = before_relu->to_doubles();
    const std::size_t plane = z.size() / static_cast<std::size_t>(before_relu->shape()[0] * channels);
    for (std::size_t i = 0; i < z.size(); ++i) {
      const std::size_t channel = i / plane % scale_.size();
      z[i] = scale_[channel] * z[i] + shift_[channel];
    }
    bias = form.parameter(
        "bias", Tensor::from_doubles(form.dtype(), {channels}, bias_beside_kink(z, before_relu->shape(), form.rng())));
  }
  const std::vector<double> biases = form.tensor(bias).to_doubles();
  for (std::size_t k = 0; k < biases.size(); ++k) shift_[k] += biases[k];
  names_ = {scale, bias, mean, variance};
}

std::string Normalisation::node(SideBuilder& side, const std::string& z) const {
  return side.node("BatchNormalization", {z, names_[0], names_[1], names_[2], names_[3]}, {{"epsilon", kEpsilon}});
}

std::string Normalisation::formula(SideBuilder& side, const std::string& z) const {
  std::vector<std::string> planes;
  for (const std::string& name : names_)
    planes.push_back(by_channel(side, name, static_cast<std::int64_t>(scale_.size())));
  return normalised(side, z, planes[2], planes[3], planes[0], planes[1]);
}

std::string Normalisation::scaled_and_shifted(SideBuilder& side, const std::string& z) const {
  const Shape shape{1, static_cast<std::int64_t>(scale_.size()), 1, 1};
  const std::string scaled = side.node("Mul", {z, side.folded("folded_scale", shape, scale_)});
  return side.node("Add", {scaled, side.folded("folded_shift", shape, shift_)});
}

std::string Normalisation::folded(SideBuilder& side, const FormBuilder& form, const DrawnConvolution& c) const {
  const Tensor& given = form.tensor(c.weights);
  std::vector<double> weights = given.to_doubles();
  const std::size_t kernel = weights.size() / scale_.size();
  for (std::size_t k = 0; k < weights.size(); ++k) weights[k] *= scale_[k / kernel];
  const std::string bias = side.folded("folded_bias", {static_cast<std::int64_t>(shift_.size())}, shift_);
  return c.node(side, bias, side.folded("folded_weights", given.shape(), weights));
}

std::string normalised(SideBuilder& side, const std::string& z, const std::string& mean, const std::string& variance,
                       const std::string& scale, const std::string& bias) {
  const std::string epsilon = side.number(static_cast<double>(Normalisation::kEpsilon));
  const std::string deviation = side.node("Sqrt", {side.node("Add", {variance, epsilon})});
  const std::string standard = side.node("Div", {side.node("Sub", {z, mean}), deviation});
  return side.node("Add", {side.node("Mul", {standard, scale}), bias});
}

std::string by_channel(SideBuilder& side, const std::string& values, std::int64_t channels) {
  return side.reshape(values, {1, channels, 1, 1});
}

}  // namespace opdiff
