// Normalisation with running statistics in forms: as a node, as a scale and a shift, folded into the weights before it.
#pragma once

#include "forms/convolution.h"

namespace opdiff {

class Normalisation {
 public:
  static constexpr float kEpsilon = 1e-5f;

  // Draws scale, bias, mean and variance of `channels` channels as parameters of the form. With `before_relu`, what is
  // normalised: the bias then keeps the results away from 0 (forms/kink.h).
  Normalisation(FormBuilder& form, std::int64_t channels, const Tensor* before_relu = nullptr);

  // BatchNormalization of z [n, channels, ...].
  std::string node(SideBuilder& side, const std::string& z) const;
  // The same by its formula, of z [n, channels, h, w].
  std::string formula(SideBuilder& side, const std::string& z) const;
  // The same as one product and one sum with folded constants.
  std::string scaled_and_shifted(SideBuilder& side, const std::string& z) const;
  // The kernel of this convolution and the normalisation after it as one Conv.
  std::string folded(SideBuilder& side, const FormBuilder& form, const DrawnConvolution& c) const;

 private:
  std::vector<std::string> names_;     // scale, bias, mean, variance
  std::vector<double> scale_, shift_;  // y = scale z + shift
};

// (z - mean) / sqrt(variance + epsilon) * scale + bias, all of shapes that broadcast.
std::string normalised(SideBuilder& side, const std::string& z, const std::string& mean, const std::string& variance,
                       const std::string& scale, const std::string& bias);
// A tensor of one number a channel, as it broadcasts over [n, channels, h, w].
std::string by_channel(SideBuilder& side, const std::string& values, std::int64_t channels);

}  // namespace opdiff
