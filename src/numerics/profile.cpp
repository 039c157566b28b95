#include "numerics/profile.h"

namespace opdiff {
namespace {

Arithmetic constants_of(const Profile& p) {
  return {p.inner.unit_roundoff(), p.inner.eta(),   p.inner.lambda(), p.inner.max_finite(),
          p.sum.unit_roundoff(),   p.sum.eta(),     p.sum.lambda(),   p.sum.max_finite(),
          p.function_ulps,         p.flush_to_zero, p.inner,          p.sum};
}

thread_local const Arithmetic* current = nullptr;

}  // namespace

Profile inner_f32(DType storage) {
  if (storage == DType::f64) return {"inner-f64", kF64, kF64, kF64};
  return {"inner-f32", kF32, kF32, format_of(storage)};
}

Profile inner_storage(DType storage) {
  if (storage == DType::f64) return inner_f32(storage);
  return {"inner-storage", format_of(storage), kF32, format_of(storage)};
}

bool profiles_differ(DType storage) { return storage == DType::f16 || storage == DType::bf16; }

const Arithmetic& arithmetic() {
  static const Arithmetic fallback = constants_of(inner_f32(DType::f32));
  return current ? *current : fallback;
}

ProfileScope::ProfileScope(const Profile& profile) : own_(constants_of(profile)), outer_(current) { current = &own_; }
ProfileScope::ProfileScope(const Arithmetic& arithmetic) : own_(arithmetic), outer_(current) { current = &own_; }
ProfileScope::~ProfileScope() { current = outer_; }

bool representable(double x, const Format& format) {
  if (format == kF64) return true;
  if (format == kF32) return static_cast<double>(static_cast<float>(x)) == x;
  return round_to(x, format) == x;
}

}  // namespace opdiff
