// What the pools share: windows from attributes, the part of a window that lies in the input, generated geometry.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "ops/op.h"
#include "ops/window.h"

namespace opdiff {

// The taps of one window that lie in the input: an arithmetic progression along each axis (leading axes of one tap
// where there are fewer than three).
struct Patch {
  std::int64_t first[3] = {0, 0, 0}, step[3] = {1, 1, 1}, count[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
  std::int64_t declared = 1;  // taps in the input or its declared padding: what ceil_mode adds beyond does not count

  std::int64_t size() const { return count[0] * count[1] * count[2]; }
  // Flat positions in the input's plane, in index order.
  template <class Visit>
  void visit(const Visit& visit_position) const {
    for (std::int64_t i = 0; i < count[0]; ++i)
      for (std::int64_t j = 0; j < count[1]; ++j)
        for (std::int64_t k = 0; k < count[2]; ++k)
          visit_position((first[0] + i * step[0]) * stride[0] + (first[1] + j * step[1]) * stride[1] +
                         (first[2] + k * step[2]) * stride[2]);
  }
  // Whether (d, h, w) (leading axes 0 where there are fewer) is one of the taps.
  bool contains(const std::int64_t (&position)[3]) const;
};
Patch patch_at(const Window& window, std::int64_t out);

// The positions of every window, to be read for many planes.
class Patches {
 public:
  explicit Patches(const Window& window);
  std::span<const std::int64_t> of(std::int64_t out) const {
    const auto o = static_cast<std::size_t>(out);
    return std::span(positions_).subspan(start_[o], start_[o + 1] - start_[o]);
  }

 private:
  std::vector<std::size_t> start_;
  std::vector<std::int64_t> positions_;
};

// Checks X and kernel_shape and reads the window.
Expected<Window> pool_window(const Call& call);
// [N, C, windows...].
Shape pool_shape(const Call& call, const Window& window);
// Windows that lie wholly in padding, per output element; empty: none.
std::vector<bool> windows_in_padding(const Call& call);

// A sample with the geometry where pools err: ceil_mode's last window, kernels smaller and larger than the stride,
// asymmetric padding, one long window now and then. `dilations_since`: the opset from which the operator has them.
Sample pool_sample(SampleContext& context, std::string_view op, int dilations_since, bool counts_padding);
std::vector<Sample> pool_refused(std::string_view op);

}  // namespace opdiff
