#include "numerics/statistics.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>

namespace opdiff {

double rms_quantile(std::int64_t n, double p) {
  const auto count = static_cast<double>(n);
  const boost::math::chi_squared distribution(count);
  return std::sqrt(quantile(complement(distribution, p)) / count);
}

double normal_quantile(double p) { return quantile(complement(boost::math::normal(), p)); }

double rms_tail(std::int64_t n, double rms) {
  const auto count = static_cast<double>(n);
  const double statistic = rms * rms * count;
  if (!std::isfinite(statistic)) return 0;
  return cdf(complement(boost::math::chi_squared(count), statistic));
}

double normal_tail(double z) {
  if (!std::isfinite(z)) return 0;
  return 2 * cdf(complement(boost::math::normal(), std::fabs(z)));
}

double binomial_tail(std::int64_t n, std::int64_t k, double probability) {
  const boost::math::binomial distribution(static_cast<double>(n), probability);
  const auto count = static_cast<double>(k);
  const double below = cdf(distribution, count), above = k == 0 ? 1 : cdf(complement(distribution, count - 1));
  return std::min(1.0, 2 * std::min(below, above));
}

}  // namespace opdiff
