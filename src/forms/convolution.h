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

// Whether a kernel of these parameters fits into the padded input at all.
bool window_fits(const Parameters& parameters);
inline constexpr Condition kWindowFits = {"a kernel that fits into the padded input", &window_fits};

// x [n,c,h,w], padded by zeros -> the elements that each window reads, one tensor [n,c,out_h,out_w] a kernel element,
// in its row-major order.
std::vector<std::string> window_elements(SideBuilder& side, const std::string& x, const WindowGeometry& g);
// The same stacked: [n, c, kernel^2, out_h * out_w].
std::string unfold(SideBuilder& side, const std::string& x, const WindowGeometry& g);

}  // namespace opdiff
