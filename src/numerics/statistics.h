// The odds behind the word "plausible": quantiles of the chi-squared and the normal distribution (Boost.Math).
#pragma once

#include <cstdint>

namespace opdiff {

// sqrt(chi2_n(1 - p) / n): the root mean square of n independent standard normals is larger with probability p only.
double rms_quantile(std::int64_t n, double p);
// |z| of one standard normal is larger with probability 2 p only.
double normal_quantile(double p);
// Upper tails: the probability that the root mean square of n standard normals exceeds rms; that |z| of one exceeds z.
double rms_tail(std::int64_t n, double rms);
double normal_tail(double z);
// Both tails: the probability that the number of successes in n trials is as far out as k, or further.
double binomial_tail(std::int64_t n, std::int64_t k, double probability);

}  // namespace opdiff
