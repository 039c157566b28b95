// What forms of transposed convolutions share.
#pragma once

#include "forms/convolution.h"

namespace opdiff {

// An input x [n, group c, h, w] and weights [group c, o, kernel, kernel] of a ConvTranspose, from the parameters of a
// convolution, group and output_padding.
struct DrawnTransposedConvolution : WindowGeometry {
  std::int64_t o, group, output_padding;
  std::string x, weights;

  explicit DrawnTransposedConvolution(FormBuilder& form);
  std::string node(SideBuilder& side) const;
  Shape y_shape() const { return {n, group * o, extent(h), extent(w)}; }

 private:
  std::int64_t extent(std::int64_t in) const {
    return (in - 1) * stride - 2 * pad + dilation * (kernel - 1) + output_padding + 1;
  }
};

std::vector<ParameterSpec> transposed_convolution_parameters();
// The pads do not take more than a window adds, the output has elements, output_padding is less than the stride.
std::vector<Condition> transposed_convolution_conditions();
std::vector<FormRegion> transposed_convolution_regions();

}  // namespace opdiff
