#include "judge/quick_pass.h"

#include <algorithm>
#include <cmath>

#include "judge/figures.h"
#include "judge/look.h"
#include "judge/plausible.h"

namespace opdiff {

std::optional<Verdict> quick_pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                                  const Tensor& expected, const EnclosedTensor& e, const std::string& profile,
                                  const std::string& explanation, bool with_figures) {
  if (op.unspecified || got.dtype() != DType::f32 || got.size() == 0) return std::nullopt;
  const std::size_t n = static_cast<std::size_t>(got.size());
  const std::span<const float> ys = got.as<float>(), rights = expected.as<float>();
  const double limit = max_limit(got.size());
  std::vector<double> z(n);
  std::vector<char> counts(n);
  Verdict v;
  std::int64_t exact = 0;
  std::size_t worst = 0;
  double weight = -1, worst_error = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double y = ys[i];
    const Look l = look(y, e, i);
    if (l.fit == Fit::impossible || !(std::fabs(l.z) <= limit)) return std::nullopt;
    const double error = (y - e.centre[i]) - (e.low.empty() ? 0 : e.low[i]), size = std::fabs(error);
    v.unproven_elements += l.fit == Fit::unproven || (l.fit == Fit::possible && is_blurred(e, i, error));
    z[i] = l.z;
    counts[i] = e.deviation[i] > 0;
    exact += ys[i] == rights[i] || (std::isnan(ys[i]) && std::isnan(rights[i]));
    const double w = std::fabs(l.z);
    if (w > weight || (w == weight && !(size <= worst_error))) {
      weight = w;
      worst = i;
      worst_error = size;
    }
    if (error != 0 && std::isfinite(error))
      v.excess = std::max(v.excess, e.radius[i] > 0 ? size / e.radius[i] : kInfinity);
  }
  if (exact == got.size()) return std::nullopt;  // zeros of the other sign: no yardstick is needed
  const std::vector<double> doubles(ys.begin(), ys.end());
  Scores scores{got.shape(), z, counts, e.centre, doubles, std::nullopt};
  if (op.group_axes) scores.group_axes = op.group_axes(call, output);
  const Plausibility p = judge_scores(scores, Scoring::first_failure);
  if (!p.plausible) return std::nullopt;
  v.rung = Rung::rounding;
  v.unproven = v.unproven_elements > 0;
  v.profile = profile;
  v.explanation = explanation;
  v.elements = got.size();
  v.counts[static_cast<std::size_t>(Rung::exact)] = exact;
  v.counts[static_cast<std::size_t>(Rung::rounding)] = got.size() - exact;
  v.z_rms = p.rms;
  v.z_mean = p.mean;
  v.z_max = p.max;
  v.z_rms_limit = p.rms_limit;
  v.z_max_limit = p.max_limit;
  v.worst = {static_cast<std::int64_t>(worst),
             unravel(static_cast<std::int64_t>(worst), got.shape()),
             doubles[worst],
             e.centre[worst],
             e.radius[worst],
             e.deviation[worst]};
  if (with_figures) v.figures = classic_figures(doubles, e.centre, kF32);
  return v;
}

}  // namespace opdiff
