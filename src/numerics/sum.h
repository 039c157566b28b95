// Order-free sums: Sum<T> adds terms of any scalar; as an Enclosure its result covers every order and every tree of
// additions (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). Products are in numerics/product.h.
#pragma once

#include <bit>
#include <type_traits>
#include <vector>

#include "numerics/enclosure.h"
#include "numerics/order.h"
#include "numerics/working.h"

namespace opdiff {

// gamma_n = n u / (1 - n u); infinite when n u >= 1.
inline double gamma(double n, double u) { return n * u < 1 ? n * u / (1 - n * u) : kInfinity; }

// Exponent of the lowest set bit of x != 0: x is a multiple of 2^lowest_bit(x).
inline int lowest_bit(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF);
  std::uint64_t significand = bits & 0xFFFFFFFFFFFFFu;
  if (exponent != 0) significand |= std::uint64_t{1} << 52;
  return std::max(exponent, 1) - 1075 + std::countr_zero(significand);
}
inline constexpr int kNoQuantum = 4096;  // all terms so far are zero

// The magnitudes, summed in double, up to which a sum of multiples of 2^quantum is exact in every order: 2^quantum / u.
// Negative: there are none.
inline double exact_limit(int quantum, const Format& format) {
  if (quantum == kNoQuantum) return kInfinity;
  if (quantum < format.min_exponent - format.digits + 1) return -1;
  const int exponent = std::min(quantum + format.digits, 1023);  // of a normal number
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// When all terms are multiples of 2^quantum and their magnitudes sum to less than 2^quantum / u, every partial sum in
// every order is a number of the format: nothing is rounded.
// `magnitudes` were summed in double: at the limit itself they may have lost the last of f64's terms.
inline bool sums_exactly(int quantum, double magnitudes, const Format& format) {
  if (quantum == kNoQuantum) return true;
  const double limit = exact_limit(quantum, format);
  return (magnitudes < limit || (magnitudes == limit && format.digits < 53)) && magnitudes <= format.max_finite();
}

// Which infinities an accumulation may pass through, from the sums of its positive and negative terms.
inline std::uint8_t sum_overflow(double value, double magnitudes, double radius, double max) {
  if (!(magnitudes < kInfinity))
    return kPlusInfinity | kMinusInfinity | kNaN;  // f64: beyond what double can tell apart
  const double positive = (magnitudes + value) / 2, negative = (magnitudes - value) / 2;
  std::uint8_t o = 0;
  if (positive + radius > max) o |= kPlusInfinity;
  if (negative + radius > max) o |= kMinusInfinity;
  if (o == (kPlusInfinity | kMinusInfinity)) o |= kNaN;
  return o;
}

// NaN, where a sum that has or may have the infinities `reached` may pass through the opposite one: its `terms` finite
// terms may overflow before they meet it.
inline std::uint8_t beside_infinity(std::uint8_t reached, double magnitudes, double terms, const Arithmetic& a) {
  if (!(magnitudes * (1 + gamma(terms, a.u_sum)) <= a.max_sum)) reached |= kPlusInfinity | kMinusInfinity;
  return reached & kPlusInfinity && reached & kMinusInfinity ? kNaN : kNoOverflow;
}

template <class T>
class Sum {  // double, Quad
 public:
  void add(const T& x) { total_ += x; }
  T result() const { return total_; }

 private:
  T total_ = 0;
};

template <>
class Sum<std::int64_t> {  // wraps around, as the frameworks' integers do
 public:
  void add(std::int64_t x) { total_ += static_cast<std::uint64_t>(x); }
  std::int64_t result() const { return static_cast<std::int64_t>(total_); }

 private:
  std::uint64_t total_ = 0;
};

template <>
class Sum<Working> {
 public:
  void add(Working x) { terms_.push_back(x.v); }
  Working result() const { return Working::round(sum_in_order(terms_, {}, working_order(), arithmetic().sum)); }

 private:
  std::vector<double> terms_;
};

template <class V>
class Sum<Enclosure<V>> {
 public:
  void add(const Enclosure<V>& x) {
    total_ += x.v;
    const double m = x.magnitude();
    if (m == 0 && x.exact() && !x.overflow) return;  // adding zero rounds nothing
    if (m == kInfinity && !math::is_finite(x.v)) {
      overflow_ = enclosure_detail::added(overflow_, x.overflow);
      return;
    }
    radius_ += x.e;
    magnitudes_ += m + x.e;
    variance_ += x.s;
    for (int k = 0; k < Enclosure<V>::kSources; ++k) shared_[k] += x.shared[k];
    overflow_ = enclosure_detail::added(overflow_, x.overflow);
    const Square partial = static_cast<Square>(total_);
    if (count_++ > 0) squares_ += partial * partial;
    exact_ = exact_ && x.exact() && static_cast<V>(x.value()) == x.v;
    if (exact_ && m != 0) quantum_ = std::min(quantum_, lowest_bit(x.value()));
  }

  Enclosure<V> result() const {
    const Arithmetic& a = arithmetic();
    Enclosure<V> y;
    y.v = total_;
    y.overflow = overflow_;
    if (!math::is_finite(total_)) {
      y.overflow |= beside_infinity(enclosure_detail::non_finite(y), magnitudes_, static_cast<double>(count_), a);
      return y;
    }
    if (exact_ && sums_exactly(quantum_, magnitudes_, a.sum) && !a.flush_to_zero)
      return enclosure_detail::rounded_sum(y);
    const double n = static_cast<double>(count_);
    y.e = (radius_ + gamma(std::max(n - 1, 0.0), a.u_sum) * magnitudes_) * kOutward;
    y.s = variance_ + Square(a.u_sum) * a.u_sum / 3 * squares_;
    for (int k = 0; k < Enclosure<V>::kSources; ++k) y.shared[k] = shared_[k];
    if (a.flush_to_zero) {
      y.e += n * a.lambda_sum;
      y.s += n * Square(a.lambda_sum) * a.lambda_sum;
    }
    y.overflow = enclosure_detail::added(y.overflow, sum_overflow(y.value(), magnitudes_, y.e, a.max_sum));
    return enclosure_detail::rounded_sum(y);
  }

 private:
  V total_ = 0;
  using Square = typename Enclosure<V>::Square;
  double radius_ = 0, magnitudes_ = 0;
  Square variance_ = 0, squares_ = 0;
  double shared_[Enclosure<V>::kSources] = {0, 0};
  std::int64_t count_ = 0;
  int quantum_ = kNoQuantum;
  bool exact_ = true;
  std::uint8_t overflow_ = kNoOverflow;
};

}  // namespace opdiff
