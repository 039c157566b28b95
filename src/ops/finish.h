// The last rounding of an enclosure, to the storage format: adds its error, the oracle's own and overflow.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/meta_operator.h"

namespace opdiff {

template <class V>
class Finish {
 public:
  explicit Finish(const Profile& profile)
      : storage_(profile.storage),
        u_(storage_.unit_roundoff()),
        eta_(storage_.eta()),
        lambda_(storage_.lambda()),
        largest_(storage_.max_finite()),
        own_(kUnitRoundoff<V> / std::min(profile.inner.unit_roundoff(), profile.sum.unit_roundoff())),
        already_rounded_(storage_ == profile.inner && storage_.digits <= profile.sum.digits),
        flushes_(profile.flush_to_zero) {}

  EnclosedElement operator()(const Enclosure<V>& x) const {
    EnclosedElement result;
    const double m = x.magnitude();
    result.centre = x.value();
    if constexpr (std::is_same_v<V, Quad>)
      result.low = math::is_finite(x.v) ? static_cast<double>(x.v - static_cast<Quad>(result.centre)) : 0;
    result.overflow = x.overflow;
    if (!math::is_finite(x.v)) return result;
    if (!(x.e < kInfinity) || !(m <= std::numeric_limits<double>::max())) {
      if (m + x.e > largest_) result.overflow |= x.v > 0 ? kPlusInfinity : kMinusInfinity;
      result.radius = result.deviation = kInfinity;
      // n u >= 1 in some sum: the worst case says nothing, the deviation is as good as ever.
      if (const auto variance = x.variance() + (u_ * m) * (u_ * m) / 3; m <= largest_ && variance < kInfinity) {
        result.deviation = static_cast<double>(std::sqrt(variance));
        result.rho = std::max(result.deviation * own_, kUnitRoundoff<V> * m);
      }
      return result;
    }
    double radius = x.e;
    Square variance = x.variance();
    result.rho = radius * own_;
    const bool exact = x.exact() && representable(x.value(), storage_) && static_cast<V>(x.value()) == x.v;
    if (!already_rounded_ && !exact) {
      radius = (radius + std::max(u_ * (m + radius), eta_ / 2)) * kOutward;
      variance += Square(u_ * m) * (u_ * m) / 3 + (m < lambda_ ? Square(eta_) * eta_ / 12 : Square(0));
      result.rho = std::max(result.rho, kUnitRoundoff<V> * m);
      if (flushes_ && m - x.e < lambda_) {
        radius += lambda_;
        if (m < lambda_) variance += Square(m) * m;
      }
    }
    if (m + radius > largest_) result.overflow |= x.v > 0 ? kPlusInfinity : kMinusInfinity;
    result.radius = radius;
    // Where a deviation is below double's range, its smallest number stands for it.
    result.deviation = static_cast<double>(std::sqrt(variance));
    if (variance > 0) result.deviation = std::max(result.deviation, std::numeric_limits<double>::denorm_min());
    return result;
  }

  // The same of `count` neighbours, array by array; false where one of them must be looked at by itself: its last
  // rounding is still to come, or it may overflow or be infinite.
  [[nodiscard]] bool plain(const Enclosure<double>* x, std::size_t count, double* centre, double* radius,
                           double* deviation, double* rho) const {
    if (!already_rounded_ || flushes_) return false;
    bool all = true;
    for (std::size_t i = 0; i < count; ++i) {
      centre[i] = x[i].v;
      radius[i] = x[i].e;
      rho[i] = x[i].e * own_;
      deviation[i] = x[i].variance();
      all &= x[i].overflow == kNoOverflow;
    }
    for (std::size_t i = 0; i < count; ++i) all &= std::fabs(centre[i]) + radius[i] <= largest_;
    for (std::size_t i = 0; i < count; ++i) deviation[i] = std::sqrt(deviation[i]);
    return all;
  }

 private:
  using Square = typename Enclosure<V>::Square;

  Format storage_;
  double u_, eta_, lambda_, largest_;
  // The centre was computed by the same formula with unit roundoff u(V): its own radius is the radius times this.
  double own_;
  // Every operation ends with a rounding to the inner format (sums, too: numerics/sum.h).
  bool already_rounded_;
  bool flushes_;
};

}  // namespace opdiff
