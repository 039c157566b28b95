// Winograd convolution F(m, 3) in two dimensions as a named algorithm with a derived yardstick (Lavin and Gray 2016;
// error bound after Barabasz, Anderson, Soodhalter and Gregg 2020).
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"
#include "ops/window.h"

namespace opdiff {

// The transforms for output tiles of m and kernels of r, from the usual points 0, 1, -1, 2, -2, 1/2, -1/2 and infinity:
// y = A^T [(G g) . (B^T d)]. Row-major; n = m + r - 1: at is m x n, g is n x r, bt is n x n.
struct WinogradTransforms {
  int m, r, n;
  std::vector<double> at, g, bt;
};
WinogradTransforms winograd_transforms(int m, int r);

// F(2,3), F(4,3) and F(6,3) for 3 x 3 convolutions of stride and dilation 1; empty for others.
std::vector<NamedAlgorithm> winograd_algorithms(const Call& call, const Window& window);

}  // namespace opdiff
