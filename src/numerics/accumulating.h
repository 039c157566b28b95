// The arithmetic in which sums are accumulated, for steps whose results stay in that format: the inner format is the
// sums'.
#pragma once

#include "numerics/profile.h"

namespace opdiff {

inline Arithmetic accumulating(Arithmetic a) {
  a.inner = a.sum;
  a.u = a.u_sum;
  a.eta = a.eta_sum;
  a.lambda = a.lambda_sum;
  a.max = a.max_sum;
  return a;
}

}  // namespace opdiff
