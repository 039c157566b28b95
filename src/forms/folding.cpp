#include "forms/folding.h"

#include <cmath>

namespace opdiff {

Normalisation::Normalisation(FormBuilder& form, std::int64_t channels) {
  names_ = {form.parameter("scale", {channels}, Values::positive), form.parameter("bias", {channels}),
            form.parameter("mean", {channels}), form.parameter("variance", {channels}, Values::positive)};
  std::vector<std::vector<double>> values;
  for (const std::string& name : names_) values.push_back(form.tensor(name).to_doubles());
  for (std::size_t k = 0; k < values[0].size(); ++k) {
    scale_.push_back(values[0][k] / std::sqrt(values[3][k] + static_cast<double>(kEpsilon)));
    shift_.push_back(values[1][k] - scale_[k] * values[2][k]);
  }
}

std::string Normalisation::node(SideBuilder& side, const std::string& z) const {
  return side.node("BatchNormalization", {z, names_[0], names_[1], names_[2], names_[3]}, {{"epsilon", kEpsilon}});
}

FoldedConvolution Normalisation::fold(const FormBuilder& form, const std::string& w) const {
  FoldedConvolution folded{form.tensor(w).to_doubles(), shift_};
  const std::size_t kernel = folded.weights.size() / scale_.size();
  for (std::size_t k = 0; k < folded.weights.size(); ++k) folded.weights[k] *= scale_[k / kernel];
  return folded;
}

}  // namespace opdiff
