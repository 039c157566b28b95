// Data that keep the argument of a Relu away from 0: beside its kink one rounding would decide the gradient.
#pragma once

#include "forms/builder.h"

namespace opdiff {

// What one node gives, in single precision: near enough to know where the kinks are.
Tensor approximately(std::string_view op, const std::vector<Tensor>& inputs, const SideBuilder::Attributes& attributes);

// z of a shape [n, channels, ...] -> a bias for each channel: minus the middle of the widest gap between the channel's
// values, the outermost tenths aside. On both sides of 0 remain some.
std::vector<double> bias_beside_kink(const std::vector<double>& z, const Shape& shape, Rng& rng);

// addend moved so that |z + addend| is 1/4 at least.
std::vector<double> moved_from_kink(const std::vector<double>& z, std::vector<double> addend);

}  // namespace opdiff
