#include "judge/figures.h"

#include <algorithm>
#include <cmath>

#include "judge/judge.h"
#include "judge/plausible.h"
#include "numerics/statistics.h"

namespace opdiff {
namespace {

// Section 6 of docs/numerics.md: suspect above these multiples of the measured noise.
constexpr double kSuspectRms = 3;
constexpr double kSuspectMax = 10;

// Wide holds squares of numbers of the format.
template <class Wide>
ClassicFigures figures_in(std::span<const double> got, std::span<const double> centre, const Format& format) {
  ClassicFigures f;
  Wide squares = 0, gg = 0, cc = 0, gc = 0;
  double largest = 0, relative_sum = 0, absolute_sum = 0;
  std::int64_t n = 0, nonzero = 0, beyond3 = 0, beyond4 = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i]) || !std::isfinite(centre[i])) continue;
    ++n;
    const double error = std::fabs(got[i] - centre[i]), size = std::fabs(centre[i]);
    absolute_sum += error;
    f.max_absolute = std::max(f.max_absolute, error);
    const Wide e = error, g = got[i], c = centre[i];
    squares += e * e;
    gg += g * g;
    cc += c * c;
    gc += g * c;
    largest = std::max(largest, size);
    if (error > 0) f.max_ulp = std::max(f.max_ulp, error / ulp(centre[i], format));
    if (size == 0) continue;
    ++nonzero;
    const double relative = error / size;
    relative_sum += relative;
    f.max_relative = std::max(f.max_relative, relative);
    beyond3 += relative > 1e-3;
    beyond4 += relative > 1e-4;
  }
  if (n == 0) return f;
  const auto count = static_cast<double>(n);
  f.mean_absolute = absolute_sum / count;
  f.rmse = static_cast<double>(std::sqrt(squares / count));
  f.psnr = f.rmse > 0 && largest > 0 ? 20 * std::log10(largest / f.rmse) : HUGE_VAL;
  f.cosine = gg > 0 && cc > 0 ? static_cast<double>(gc / std::sqrt(gg) / std::sqrt(cc)) : (gg == cc ? 1 : 0);
  if (nonzero > 0) {
    f.mean_relative = relative_sum / static_cast<double>(nonzero);
    f.share_beyond_1e3 = static_cast<double>(beyond3) / static_cast<double>(nonzero);
    f.share_beyond_1e4 = static_cast<double>(beyond4) / static_cast<double>(nonzero);
  }
  return f;
}

}  // namespace

ClassicFigures classic_figures(std::span<const double> got, std::span<const double> centre, const Format& format) {
  return format.max_exponent < 512 ? figures_in<double>(got, centre, format)
                                   : figures_in<long double>(got, centre, format);
}

FloorComparison compare_with_floor(const Tensor& got, const Tensor& reference, std::span<const double> floor) {
  FloorComparison result;
  if (got.dtype() != reference.dtype() || got.shape() != reference.shape()) {
    result.suspect = true;
    result.rms = result.max = HUGE_VAL;
    return result;
  }
  const std::vector<double> y = got.to_doubles(), c = reference.to_doubles();
  double squares = 0;
  std::int64_t n = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(y[i]) || !std::isfinite(c[i])) {
      if (!(y[i] == c[i] || (std::isnan(y[i]) && std::isnan(c[i])))) result.non_finite_differs = true;
      continue;
    }
    ++n;
    const double error = std::fabs(y[i] - c[i]);
    if (error == 0) continue;
    const double ratio = floor[i] > 0 ? error / floor[i] : HUGE_VAL;
    squares += ratio * ratio;
    result.max = std::max(result.max, ratio);
  }
  if (n > 0)
    result.rms =
        std::sqrt(squares / static_cast<double>(n)) * kSuspectRms / std::max(kSuspectRms, rms_quantile(n, kOdds));
  result.suspect = result.rms > kSuspectRms || result.max > kSuspectMax || result.non_finite_differs;
  result.figures = classic_figures(y, c, is_float(got.dtype()) ? format_of(got.dtype()) : kF64);
  return result;
}

}  // namespace opdiff
