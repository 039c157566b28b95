#include "judge/quick_pass.h"

#include <algorithm>
#include <cmath>

#include "judge/figures.h"
#include "judge/look.h"
#include "judge/plausible.h"
#include "ops/finish.h"

namespace opdiff {
namespace {

// `element` gives what the yardstick says of element i.
template <class Element>
std::optional<Verdict> pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                            const Tensor& expected, const Element& element, const std::string& profile,
                            const std::string& explanation, bool with_figures) {
  if (op.unspecified || got.dtype() != DType::f32 || got.size() == 0) return std::nullopt;
  const std::size_t n = static_cast<std::size_t>(got.size());
  const std::span<const float> ys = got.as<float>(), rights = expected.as<float>();
  const double limit = max_limit(got.size());
  std::vector<double> z, centre;
  std::vector<char> counts;
  z.reserve(n);
  centre.reserve(n);
  counts.reserve(n);
  Verdict v;
  std::int64_t exact = 0;
  std::size_t worst = 0;
  double weight = -1, worst_error = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double y = ys[i];
    const EnclosedElement e = element(i);
    const Look l = look(y, e);
    if (l.fit == Fit::impossible || !(std::fabs(l.z) <= limit)) return std::nullopt;
    const double error = (y - e.centre) - e.low, size = std::fabs(error);
    v.unproven_elements += l.fit == Fit::unproven || (l.fit == Fit::possible && is_blurred(e, error));
    z.push_back(l.z);
    centre.push_back(e.centre);
    counts.push_back(e.deviation > 0);
    exact += ys[i] == rights[i] || (std::isnan(ys[i]) && std::isnan(rights[i]));
    const double w = std::fabs(l.z);
    if (w > weight || (w == weight && !(size <= worst_error))) {
      weight = w;
      worst = i;
      worst_error = size;
    }
    if (error != 0 && std::isfinite(error)) v.excess = std::max(v.excess, e.radius > 0 ? size / e.radius : kInfinity);
  }
  if (exact == got.size()) return std::nullopt;  // zeros of the other sign: no yardstick is needed
  const std::vector<double> doubles(ys.begin(), ys.end());
  Scores scores{got.shape(), z, counts, centre, doubles, std::nullopt};
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
  const EnclosedElement at = element(worst);
  v.worst = {static_cast<std::int64_t>(worst),
             unravel(static_cast<std::int64_t>(worst), got.shape()),
             doubles[worst],
             at.centre,
             at.radius,
             at.deviation};
  if (with_figures) v.figures = classic_figures(doubles, centre, kF32);
  return v;
}

}  // namespace

std::optional<Verdict> quick_pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                                  const Tensor& expected, const EnclosedTensor& yardstick, const std::string& profile,
                                  const std::string& explanation, bool with_figures) {
  const auto element = [&](std::size_t i) { return yardstick[i]; };
  return pass(op, call, output, got, expected, element, profile, explanation, with_figures);
}

std::optional<Verdict> quick_pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                                  const Tensor& expected, std::span<const Enclosure<double>> values,
                                  const Profile& profile, const std::string& explanation, bool with_figures) {
  const Finish<double> finished(profile);
  const auto element = [&](std::size_t i) { return finished(values[i]); };
  return pass(op, call, output, got, expected, element, profile.name, explanation, with_figures);
}

}  // namespace opdiff
