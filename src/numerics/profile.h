// A profile names the arithmetic an implementation may use: formats of the inner steps, of accumulation and of the
// result, how good its elementary functions are, and whether subnormals are flushed. Enclosure and Working read the
// profile of the current thread, set by ProfileScope.
#pragma once

#include <string>

#include "base/dtype.h"

namespace opdiff {

struct Profile {
  std::string name;          // "inner-f32", "inner-storage"
  Format inner = kF32;       // elementwise steps inside an operator
  Format sum = kF32;         // products and sums accumulate in this
  Format storage = kF32;     // the result
  double function_ulps = 0;  // elementary functions may be off by this many ulp, if more than their budget
  bool flush_to_zero = false;
};

// The profiles of the `rounding` rung for results of a floating dtype, in the order they are tried: inner steps in f32
// (or wider storage), then inner steps in the storage format where that is narrower.
Profile inner_f32(DType storage);
Profile inner_storage(DType storage);
bool profiles_differ(DType storage);

// The profile's constants, looked up once.
struct Arithmetic {
  double u, eta, lambda, max;  // inner
  double u_sum, eta_sum, lambda_sum, max_sum;
  double function_ulps;
  bool flush_to_zero;
  Format inner, sum;
};

namespace profile_detail {
extern constinit thread_local const Arithmetic* current;  // nullptr outside every scope
const Arithmetic& outside();
}  // namespace profile_detail

// That of the innermost scope of this thread; f32 outside.
inline const Arithmetic& arithmetic() {
  return profile_detail::current ? *profile_detail::current : profile_detail::outside();
}

class ProfileScope {
 public:
  explicit ProfileScope(const Profile& profile);
  explicit ProfileScope(const Arithmetic& arithmetic);  // for the threads of a pool
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Arithmetic own_;
  const Arithmetic* outer_;
};

// True when x is a number of the format (overflow aside).
bool representable(double x, const Format& format);

}  // namespace opdiff
