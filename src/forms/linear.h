// What forms of fully connected layers share: x [m, k], weights [k, n] or, transposed, [n, k], and a bias.
#pragma once

#include "forms/builder.h"

namespace opdiff {

// Parameters m n k transposed (whether the weights are [n, k], as torch keeps them).
struct DrawnLinear {
  std::int64_t m, n, k;
  bool transposed;
  std::string x, weights;

  explicit DrawnLinear(FormBuilder& form);
  std::string gemm(SideBuilder& side, const std::string& bias) const;
  // MatMul, with the weights transposed before where they must be.
  std::string product(SideBuilder& side) const;
};

std::vector<ParameterSpec> linear_parameters();
std::vector<FormRegion> linear_regions();

}  // namespace opdiff
