#include "judge/attempt.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "judge/figures.h"
#include "judge/look.h"

namespace opdiff {

namespace {

double median(std::vector<double> z) {
  if (z.empty()) return 0;
  const auto middle = z.begin() + static_cast<std::ptrdiff_t>(z.size() / 2);
  std::nth_element(z.begin(), middle, z.end());
  return *middle;
}

}  // namespace

Attempt::Attempt(const MetaOperator& op, const Call& call, int output, const Tensor& got, const Tensor& expected)
    : op_(op), call_(call), output_(output), got_(got), y_(got.to_doubles()), max_limit_(max_limit(got.size())) {
  const std::size_t n = y_.size();
  const std::vector<double> rounded = expected.to_doubles();
  possible_.assign(n, 0);
  passed_.assign(n, 0);
  counted_.assign(n, 0);
  unproven_.assign(n, 0);
  correctly_rounded_.assign(n, 0);
  rung_.assign(n, Rung::defect);
  z_.assign(n, kInfinity);
  error_.assign(n, 0);
  const std::vector<bool> open = op.unspecified ? op.unspecified(call, output) : std::vector<bool>();
  bool all = true;
  for (std::size_t i = 0; i < n; ++i) {
    if (!open.empty() && open[i]) {  // any value is as good as the reference's
      y_[i] = rounded[i];
      ++verdict_.unspecified_elements;
    }
    const bool same = y_[i] == rounded[i] || (std::isnan(y_[i]) && std::isnan(rounded[i]));
    correctly_rounded_[i] = same;
    all = all && same;
  }
  verdict_.elements = got.size();
  centre_ = rounded;
  if (!all) return;
  // Every element is the correctly rounded value: no yardstick is needed.
  passed_.assign(n, 1);
  rung_.assign(n, Rung::exact);
  z_.assign(n, 0);
  profile_ = "correctly rounded";
  finish(Rung::exact, "");
}

Plausibility Attempt::score(const std::vector<double>& z, Scoring scoring) const {
  Scores scores{got_.shape(), z, counted_, centre_, y_, std::nullopt};
  if (op_.group_axes) scores.group_axes = op_.group_axes(call_, output_);
  return judge_scores(scores, scoring);
}

bool Attempt::explain(Rung rung, const EnclosedTensor& e, const std::string& profile, const std::string& explanation,
                      bool radius_proves) {
  const std::size_t n = y_.size();
  std::vector<double> fresh(n, 0);
  std::vector<char> fits(n, 0);
  bool all_passed = true, all_fit = true;
  if (first_) {
    centre_ = e.centre;
    for (std::size_t i = 0; i < n; ++i) error_[i] = (y_[i] - e.centre[i]) - (e.low.empty() ? 0 : e.low[i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    Look l = look(y_[i], e[i]);
    // Without a proof, only honest rounding gets the benefit of the doubt: a wider yardstick that says nothing must not
    // excuse what a narrower one refuted.
    const bool proves = radius_proves && (l.fit == Fit::possible || rung <= Rung::rounding);
    if (!proves && (l.fit == Fit::unproven || std::fabs(l.z) > max_limit_)) l = {Fit::impossible, kInfinity};
    if (l.fit == Fit::unproven || (l.fit == Fit::possible && is_blurred(e[i], error_[i]))) unproven_[i] = 1;
    counted_[i] = counted_[i] || e.deviation[i] > 0;
    fresh[i] = l.z;  // replaced below where the element does not fit
    fits[i] = l.fit != Fit::impossible && std::fabs(l.z) <= max_limit_;
    if (l.fit != Fit::impossible) possible_[i] = 1;
    if (!passed_[i]) {
      if (fits[i]) {
        passed_[i] = 1;
        rung_[i] = correctly_rounded_[i] ? Rung::exact : rung;
        z_[i] = l.z;
      } else if (std::fabs(l.z) < std::fabs(z_[i])) {
        z_[i] = l.z;
      }
    }
    all_passed = all_passed && passed_[i];
    all_fit = all_fit && (fits[i] || passed_[i]);
    if (!fits[i]) fresh[i] = z_[i];
  }
  if (rung == Rung::rounding) {
    rounding_radius_ = e.radius;
    rounding_deviation_ = e.deviation;
    rounding_z_.clear();
    for (std::size_t i = 0; i < n; ++i)
      if (counted_[i]) rounding_z_.push_back(std::fabs(fresh[i]));
  }
  const bool noted = first_ || rung <= Rung::rounding;
  if (noted) note_worst(e);
  first_ = false;
  profile_ = profile;
  scored_ = all_passed;
  if (!all_passed) return false;
  last_ = score(z_, Scoring::first_failure);
  if (!last_.plausible && all_fit) {
    const Plausibility other = score(fresh, Scoring::first_failure);
    if (other.plausible) {
      z_ = fresh;
      for (std::size_t i = 0; i < n; ++i)
        if (!correctly_rounded_[i]) rung_[i] = rung;
      last_ = other;
    }
  }
  scored_ = last_.plausible;
  if (!last_.plausible) return false;
  Rung worst = Rung::exact;
  for (const Rung r : rung_) worst = std::max(worst, r);
  if (!noted) note_worst(e);
  finish(worst, explanation);
  return true;
}

bool Attempt::accept_remaining(Rung rung, const std::vector<bool>& accepts, const std::string& explanation) {
  for (std::size_t i = 0; i < y_.size(); ++i)
    if (!passed_[i] && !accepts[i]) return false;
  std::vector<double> z = z_;
  for (std::size_t i = 0; i < y_.size(); ++i)
    if (!passed_[i]) z[i] = 0;
  const Plausibility p = score(z, Scoring::first_failure);
  if (!p.plausible) return false;
  last_ = p;
  scored_ = true;
  for (std::size_t i = 0; i < y_.size(); ++i) {
    if (passed_[i]) continue;
    passed_[i] = 1;
    rung_[i] = rung;
    z_[i] = 0;
  }
  finish(rung, explanation);
  return true;
}

double Attempt::rounding_median() const { return median(rounding_z_); }

Attempt::Medians Attempt::medians_in(const EnclosedTensor& e) const {
  std::vector<double> errors, deviations;
  for (std::size_t i = 0; i < rounding_deviation_.size(); ++i) {
    if (!(e.deviation[i] > 0 && rounding_deviation_[i] > 0) || !std::isfinite(error_[i])) continue;
    errors.push_back(std::fabs(error_[i]) / e.deviation[i]);
    deviations.push_back(rounding_deviation_[i] / e.deviation[i]);
  }
  return {median(std::move(errors)), median(std::move(deviations))};
}

double Attempt::share_explained(const EnclosedTensor& e) const {
  std::int64_t explained = 0;
  for (std::size_t i = 0; i < y_.size(); ++i) {
    const Look l = look(y_[i], e[i]);
    explained += l.fit != Fit::impossible && std::fabs(l.z) <= max_limit_;
  }
  return y_.empty() ? 1 : static_cast<double>(explained) / static_cast<double>(y_.size());
}

void Attempt::settle(Rung rung, const std::string& explanation) {
  for (std::size_t i = 0; i < y_.size(); ++i)
    if (!passed_[i] || std::fabs(z_[i]) > kLeastRmsLimit) rung_[i] = rung;
  finish(rung, explanation);
}

double Attempt::share_too_good(const EnclosedTensor& e) const {
  // Correct rounding has a chance of at most 1 / (4 sqrt(2 pi) 0.5) = 0.2 there, for errors of half the deviation.
  constexpr double kManyUlps = 4;
  std::int64_t spread = 0, good = 0;
  for (std::size_t i = 0; i < y_.size(); ++i) {
    if (!(e.deviation[i] > kManyUlps * ulp(e.centre[i], format_of(got_.dtype())))) continue;
    ++spread;
    good += correctly_rounded_[i];
  }
  return spread > 0 ? static_cast<double>(good) / static_cast<double>(spread) : 0;
}

std::vector<std::int64_t> Attempt::standing_out() const {
  std::vector<std::int64_t> elements;
  const auto z = [&](std::int64_t i) {
    const auto k = static_cast<std::size_t>(i);
    return rounding_deviation_[k] > 0 ? std::fabs(error_[k]) / rounding_deviation_[k] : kInfinity;
  };
  // An infinity by overflow is possible or impossible; it errs by no number of deviations.
  for (std::size_t i = 0; i < rounding_deviation_.size(); ++i)
    if (std::isfinite(error_[i]) && std::fabs(error_[i]) > kLeastRmsLimit * rounding_deviation_[i])
      elements.push_back(static_cast<std::int64_t>(i));
  std::sort(elements.begin(), elements.end(), [&](std::int64_t a, std::int64_t b) { return z(a) > z(b); });
  return elements;
}

bool Attempt::all_possible() const { return std::find(possible_.begin(), possible_.end(), char{0}) == possible_.end(); }

void Attempt::note_worst(const EnclosedTensor& e) {
  std::size_t worst = 0;
  double weight = -1;
  for (std::size_t i = 0; i < y_.size(); ++i) {
    const Look l = look(y_[i], e[i]);
    const double w = l.fit == Fit::impossible ? kInfinity : std::fabs(l.z);
    const double tie = std::fabs(error_[i]);
    if (w > weight || (w == weight && !(tie <= std::fabs(error_[worst])))) {
      weight = w;
      worst = i;
    }
  }
  if (y_.empty()) return;
  verdict_.worst = {static_cast<std::int64_t>(worst),
                    unravel(static_cast<std::int64_t>(worst), got_.shape()),
                    y_[worst],
                    e.centre[worst],
                    e.radius[worst],
                    e.deviation[worst]};
}

void Attempt::finish(Rung rung, const std::string& explanation) {
  done_ = true;
  verdict_.rung = rung;
  verdict_.explanation = explanation;
}

Verdict Attempt::verdict() {
  Verdict& v = verdict_;
  if (!scored_) last_ = score(z_, Scoring::full);
  if (!done_) {
    const bool impossible = !all_possible();
    v.rung = impossible ? Rung::defect : Rung::unlikely;
    for (std::size_t i = 0; i < y_.size(); ++i)
      if (!possible_[i])
        rung_[i] = Rung::defect;
      else if (!passed_[i])
        rung_[i] = Rung::unlikely;
    if (!impossible) {
      v.odds = last_.odds;
      v.explanation = fmt::format("odds {:.0e}", std::max(last_.odds, 1e-300));
    }
  }
  v.profile = profile_;
  for (std::size_t i = 0; i < y_.size(); ++i) {
    ++v.counts[static_cast<std::size_t>(rung_[i])];
    v.unproven_elements += unproven_[i];
    if (!rounding_radius_.empty() && error_[i] != 0 && std::isfinite(error_[i]))
      v.excess = std::max(v.excess, rounding_radius_[i] > 0 ? std::fabs(error_[i]) / rounding_radius_[i] : kInfinity);
  }
  v.unproven = v.unproven_elements > 0;
  v.z_rms = last_.rms;
  v.z_mean = last_.mean;
  v.z_max = last_.max;
  v.z_rms_limit = last_.rms_limit;
  v.z_max_limit = last_.max_limit;
  v.figures = classic_figures(y_, centre_, format_of(got_.dtype()));
  std::int64_t strange = 0, missing = 0;
  for (std::size_t i = 0; i < y_.size(); ++i) {
    if (possible_[i] || correctly_rounded_[i]) continue;
    strange += !std::isfinite(y_[i]) && std::isfinite(centre_[i]);
    missing += !std::isfinite(centre_[i]);
  }
  if (strange > 0)
    v.note = fmt::format("{} non-finite elements where a number is right", strange);
  else if (missing > 0)
    v.note = fmt::format("{} elements where another non-finite value is right", missing);
  if (v.worst.index < 0 && !y_.empty()) v.worst = {0, Shape(got_.shape().size(), 0), y_[0], centre_[0], 0, 0};
  return v;
}

}  // namespace opdiff
