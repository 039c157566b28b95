// Normalisation with running statistics in forms: as a node, as a scale and a shift, folded into the weights before it.
#pragma once

#include "forms/builder.h"

namespace opdiff {

struct FoldedConvolution {
  std::vector<double> weights, bias;  // in double, not yet rounded
};

class Normalisation {
 public:
  static constexpr float kEpsilon = 1e-5f;

  // Draws scale, bias, mean and variance of `channels` channels as parameters of the form.
  Normalisation(FormBuilder& form, std::int64_t channels);

  // BatchNormalization of z [n, channels, ...].
  std::string node(SideBuilder& side, const std::string& z) const;
  // Per channel: y = scale z + shift.
  const std::vector<double>& scale() const { return scale_; }
  const std::vector<double>& shift() const { return shift_; }
  // The kernel [channels, ...] named `w` and the normalisation after it as one.
  FoldedConvolution fold(const FormBuilder& form, const std::string& w) const;

 private:
  std::vector<std::string> names_;  // scale, bias, mean, variance
  std::vector<double> scale_, shift_;
};

}  // namespace opdiff
