#include "numerics/profile.h"

namespace opdiff {
namespace {

Arithmetic constants_of(const Profile& p) {
  return {p.inner.unit_roundoff(), p.inner.eta(),   p.inner.lambda(), p.inner.max_finite(),
          p.sum.unit_roundoff(),   p.sum.eta(),     p.sum.lambda(),   p.sum.max_finite(),
          p.function_ulps,         p.flush_to_zero, p.inner,          p.sum};
}

}  // namespace

constinit thread_local const Arithmetic* profile_detail::current = nullptr;

const Arithmetic& profile_detail::outside() {
  static const Arithmetic f32 = constants_of(inner_f32(DType::f32));
  return f32;
}

Profile inner_f32(DType storage) {
  if (storage == DType::f64) return {"inner-f64", kF64, kF64, kF64};
  return {"inner-f32", kF32, kF32, format_of(storage)};
}

Profile inner_storage(DType storage) {
  if (storage == DType::f64) return inner_f32(storage);
  return {"inner-storage", format_of(storage), kF32, format_of(storage)};
}

bool profiles_differ(DType storage) { return storage == DType::f16 || storage == DType::bf16; }

ProfileScope::ProfileScope(const Arithmetic& arithmetic) : own_(arithmetic), outer_(profile_detail::current) {
  profile_detail::current = &own_;
}
ProfileScope::ProfileScope(const Profile& profile) : ProfileScope(constants_of(profile)) {}
ProfileScope::~ProfileScope() { profile_detail::current = outer_; }

bool representable(double x, const Format& format) {
  if (format == kF64) return true;
  if (format == kF32) return static_cast<double>(static_cast<float>(x)) == x;
  return round_to(x, format) == x;
}

}  // namespace opdiff
