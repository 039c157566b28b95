// What forms of convolutions and pools share: their parameters, and a window's elements laid side by side.
#pragma once

#include "forms/builder.h"

namespace opdiff {

// One window over two spatial axes, from the parameters n c h w kernel stride dilation pad (those that a form has not
// count as 1, pad as 0).
struct WindowGeometry {
  std::int64_t n, c, h, w, kernel, stride, dilation, pad;

  explicit WindowGeometry(const FormBuilder& form);
  std::int64_t out_h() const { return out(h); }
  std::int64_t out_w() const { return out(w); }

  std::map<std::string, Attribute> attributes(std::int64_t group = 1) const;  // of Conv
  std::map<std::string, Attribute> pool_attributes() const;                   // of AveragePool and MaxPool

 private:
  std::int64_t out(std::int64_t extent) const { return (extent + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1; }
};

// An input x [n, group c, h, w] and weights "weights" [group o, c, kernel, kernel]. Parameters as above, o and group
// (default 1); c and o count channels of one group.
struct DrawnConvolution : WindowGeometry {
  std::int64_t o, group;
  std::string x, weights;

  explicit DrawnConvolution(FormBuilder& form);
  // The Conv of x by these weights or others of their shape.
  std::string node(SideBuilder& side, const std::string& bias = "", const std::string& other_weights = "") const;
  // The same, of x padded beforehand.
  std::string node_on_padded(SideBuilder& side, const std::string& padded_x) const;
  Shape y_shape() const { return {n, group * o, out_h(), out_w()}; }
  // Its result, in single precision.
  Tensor value(const FormBuilder& form) const;
};

// The parameter of this name, or `fallback` where the form has none.
std::int64_t value_or(const Parameters& parameters, std::string_view name, std::int64_t fallback);

// n c o h w kernel stride dilation pad; the extents of the timed case are the caller's.
struct ConvolutionSize {
  std::int64_t c, o, extent;
  std::int64_t kernel = 3, n = 1;
};
std::vector<ParameterSpec> convolution_parameters(const ConvolutionSize& timed);
// n c h w kernel stride pad.
std::vector<ParameterSpec> pool_parameters();

// Whether a kernel of these parameters fits into the padded input at all.
bool window_fits(const Parameters& parameters);
inline constexpr Condition kWindowFits = {"a kernel that fits into the padded input", &window_fits};

// x [n,c,h,w], padded by zeros or `padding` (a scalar) -> the elements that each window reads, one tensor
// [n,c,out_h,out_w] a kernel element, in its row-major order.
std::vector<std::string> window_elements(SideBuilder& side, const std::string& x, const WindowGeometry& g,
                                         const std::string& padding = "");
// The same stacked: [n, c, kernel^2, out_h * out_w]; of group c channels where x has those.
std::string unfold(SideBuilder& side, const std::string& x, const WindowGeometry& g, std::int64_t group = 1,
                   const std::string& padding = "");
// Pads the spatial axes of x by g.pad zeros, or by `padding`.
std::string padded(SideBuilder& side, const std::string& x, const WindowGeometry& g, const std::string& padding = "");
// Between neighbours of both spatial axes of x [a, b, h, w] `step - 1` zeros.
std::string spread(SideBuilder& side, const std::string& x, const Shape& shape, std::int64_t step);

}  // namespace opdiff
