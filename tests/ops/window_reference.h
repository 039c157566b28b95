// Windows as the specification's words have them, for tests: the padded axis is written out position by position.
#pragma once

#include <string>
#include <vector>

#include "base/shape.h"

namespace opdiff::testing_ops {

struct Axis {
  std::int64_t input = 1, kernel = 1, stride = 1, dilation = 1, begin = 0, end = 0;
  bool ceil_mode = false;

  std::int64_t reach() const { return (kernel - 1) * dilation + 1; }
  // Windows that fit into the padded axis; with ceil_mode one more that starts in the input or its begin padding, if
  // positions are left over.
  std::int64_t outputs() const {
    const std::int64_t padded = begin + input + end;
    std::int64_t n = 0;
    while (n * stride + reach() <= padded) ++n;
    if (ceil_mode && (n - 1) * stride + reach() < padded && n * stride < begin + input) ++n;
    return n;
  }
  // Padding that auto_pad = SAME_* adds: the least with ceil(input / stride) windows, the odd one at the end (upper).
  void same(bool upper) {
    const std::int64_t n = (input + stride - 1) / stride;
    std::int64_t total = 0;
    while ((n - 1) * stride + reach() > input + total) ++total;
    begin = upper ? total / 2 : (total + 1) / 2;
    end = total - begin;
    ceil_mode = false;
  }
  // Input position of tap k of window o; negative or beyond the input: padding.
  std::int64_t at(std::int64_t o, std::int64_t k) const { return o * stride + k * dilation - begin; }
  bool inside(std::int64_t position) const { return position >= 0 && position < input; }
  bool declared(std::int64_t position) const { return position >= -begin && position < input + end; }
};

// Three axes, the leading ones trivial where there are fewer.
struct Axes {
  Axis d, h, w;
  std::int64_t outputs() const { return d.outputs() * h.outputs() * w.outputs(); }
  std::int64_t plane() const { return d.input * h.input * w.input; }
};

// visit(out, declared, position): every tap of every window of a plane, in order; position is -1 in padding.
template <class Visit>
void for_each_tap(const Axes& a, const Visit& visit) {
  std::int64_t out = 0;
  for (std::int64_t od = 0; od < a.d.outputs(); ++od)
    for (std::int64_t oh = 0; oh < a.h.outputs(); ++oh)
      for (std::int64_t ow = 0; ow < a.w.outputs(); ++ow, ++out)
        for (std::int64_t kd = 0; kd < a.d.kernel; ++kd)
          for (std::int64_t kh = 0; kh < a.h.kernel; ++kh)
            for (std::int64_t kw = 0; kw < a.w.kernel; ++kw) {
              const std::int64_t d = a.d.at(od, kd), h = a.h.at(oh, kh), w = a.w.at(ow, kw);
              const bool inside = a.d.inside(d) && a.h.inside(h) && a.w.inside(w);
              visit(out, a.d.declared(d) && a.h.declared(h) && a.w.declared(w),
                    inside ? (d * a.h.input + h) * a.w.input + w : -1);
            }
}

// The axes of a node whose attributes are spelled out (`rank` spatial dimensions).
inline Axes axes_of(const Shape& spatial, const Shape& kernel, const Shape& strides, const Shape& dilations,
                    const Shape& pads, const std::string& auto_pad, bool ceil_mode) {
  Axes axes;
  Axis* all[] = {&axes.d, &axes.h, &axes.w};
  const std::size_t rank = spatial.size();
  for (std::size_t k = 0; k < rank; ++k) {
    Axis& a = *all[3 - rank + k];
    a = {spatial[k], kernel[k], strides[k], dilations[k], 0, 0, ceil_mode};
    if (auto_pad == "NOTSET") {
      a.begin = pads[k];
      a.end = pads[rank + k];
    } else if (auto_pad != "VALID") {
      a.same(auto_pad == "SAME_UPPER");
    }
  }
  return axes;
}

}  // namespace opdiff::testing_ops
