#include "judge/ladder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "judge/attempt.h"
#include "judge/orders.h"
#include "judge/quick_pass.h"
#include "numerics/budget.h"
#include "ops/evaluate.h"
#include "ops/gradient.h"

namespace opdiff {
namespace {

// The widest of two yardsticks, element by element; the centre is the same mathematical value in both where there is
// one.
void merge(std::vector<EnclosedTensor>& into, const std::vector<EnclosedTensor>& other) {
  for (std::size_t k = 0; k < into.size(); ++k)
    for (std::size_t i = 0; i < into[k].radius.size(); ++i) {
      if (std::isnan(into[k].centre[i]) && std::isfinite(other[k].centre[i])) {  // of a number by another formula
        into[k].centre[i] = other[k].centre[i];
        if (!into[k].low.empty()) into[k].low[i] = other[k].low[i];
        into[k].radius[i] = into[k].deviation[i] = into[k].rho[i] = 0;
        into[k].overflow[i] |= kNaN;
      }
      into[k].radius[i] = std::max(into[k].radius[i], other[k].radius[i]);
      into[k].deviation[i] = std::max(into[k].deviation[i], other[k].deviation[i]);
      into[k].rho[i] = std::max(into[k].rho[i], other[k].rho[i]);
      into[k].overflow[i] |= other[k].overflow[i];
      // x / 0 by one formula is inf - inf by another: each is right.
      if (const double c = other[k].centre[i]; !std::isfinite(c) && !std::isfinite(into[k].centre[i]))
        into[k].overflow[i] |= std::isnan(c) ? kNaN : c > 0 ? kPlusInfinity : kMinusInfinity;
    }
}

// An algorithm such as Winograd's errs everywhere: it explains a tensor only if most of its elements stand out, not a
// few bad ones among honest ones. Honest direct sums have a root mean square of at most 0.77 (judge/plausible.h), a
// median of at most 0.67 * 0.77 = 0.52 for normal errors; half as much again is the limit.
constexpr double kAlgorithmMedian = 0.78;

// Kernels that treat subnormals as zero do so by every convention.
constexpr const char* kFlushed = ", subnormals treated as zero";

// A result further off by `ulps` of itself and by `floor`, in whose range it is distributed evenly.
void widen(EnclosedTensor& e, double ulps, double floor, const Format& format) {
  for (std::size_t i = 0; i < e.radius.size(); ++i) {
    const double step = ulps * ulp(e.centre[i], format) + floor;
    e.radius[i] += step;
    e.deviation[i] = std::hypot(e.deviation[i], step / std::sqrt(3));  // f64's smallest have no squares
  }
}

Tensor narrow(const Tensor& x, const Format& format, Rounding rounding) {
  std::vector<double> values = x.to_doubles();
  for (double& v : values) v = round_to(v, format, rounding);
  return Tensor::from_doubles(x.dtype(), x.shape(), values);
}

}  // namespace

Ladder::Ladder(const MetaOperator& op, const Call& call, bool with_figures, bool expects_order)
    : op_(op), call_(call), with_figures_(with_figures), expects_order_(expects_order) {
  const DType dtype = working_dtype(op, call);
  profiles_.push_back(inner_f32(dtype));
  if (profiles_differ(dtype)) profiles_.push_back(inner_storage(dtype));
}

const Ladder::Yardstick& Ladder::yardstick(const std::string& key, const std::function<Yardstick()>& make) {
  const auto found = kept_.find(key);
  return found != kept_.end() ? found->second : kept_.emplace(key, make()).first->second;
}

std::string Ladder::key_of(const Profile& profile, int last) {
  return fmt::format("{}/{}/{}/{}/{}", profile.name, last, profile.function_ulps, profile.flush_to_zero,
                     profile.sum.name);
}

const Ladder::Yardstick& Ladder::rounding(const Profile& profile, int last) {
  const std::string key = key_of(profile, last);
  return yardstick(key, [&] {
    if (last == 0 && !first_.empty() && !streamed_ && key == key_of(profiles_.front(), 0))
      return finish_outputs(op_, call_, std::exchange(first_, {}), profile);
    Yardstick merged = last == 0 ? enclose(op_, call_, profile, 0) : rounding(profile, last - 1);
    if (last > 0) merge(merged, enclose(op_, call_, profile, last));
    return merged;
  });
}

const Ladder::Yardstick& Ladder::narrowed(const Profile& profile, const Format& format, Rounding rounding) {
  return yardstick(fmt::format("{}/operands {} {}", profile.name, format.name, static_cast<int>(rounding)), [&] {
    std::vector<Tensor> operands;
    std::vector<const Tensor*> inputs;
    operands.reserve(static_cast<std::size_t>(call_.input_count()));
    const int first_cotangent = call_.input_count() - static_cast<int>(call_.integer(kCotangents, 1));
    for (int k = 0; k < call_.input_count(); ++k) {
      const Tensor* tensor = call_.tensor(k);
      const bool narrows =
          tensor && (std::find(op_.product_inputs.begin(), op_.product_inputs.end(), k) != op_.product_inputs.end() ||
                     (op_.narrows_cotangents && k >= first_cotangent));
      if (narrows) operands.push_back(narrow(*tensor, format, rounding));
      inputs.push_back(narrows ? &operands.back() : tensor);
    }
    const Call narrow_call(call_.node(), call_.opset(), inputs);
    Yardstick merged = enclose(op_, narrow_call, profile, 0);
    for (int f = 1; f < static_cast<int>(op_.formulas.size()); ++f)
      merge(merged, enclose(op_, narrow_call, profile, f));
    return merged;
  });
}

// The first of all that try_rounding() tries.
bool Ladder::try_definition(Attempt& attempt) {
  const auto k = static_cast<std::size_t>(attempt.output());
  const Profile& profile = profiles_.front();
  return attempt.explain(Rung::rounding, rounding(profile, 0)[k], profile.name, std::string(op_.formulas[0]));
}

bool Ladder::try_rounding(Attempt& attempt) {
  const auto k = static_cast<std::size_t>(attempt.output());
  for (const Profile& profile : profiles_)
    for (std::size_t f = 0; f < op_.formulas.size(); ++f)
      if (attempt.explain(Rung::rounding, rounding(profile, static_cast<int>(f))[k], profile.name,
                          std::string(op_.formulas[f])))
        return true;
  return false;
}

template <class Explain>
bool Ladder::try_order(Attempt& attempt, const Explain& explain, bool* warn) {
  if (!attempt.all_possible()) return false;
  const std::vector<std::int64_t> elements = attempt.standing_out();
  const StandsOut out{attempt.output(), attempt.got(), elements, attempt.error(), attempt.rounding_deviation()};
  const OrderExplanation order = explain(op_, call_, out, profiles_);
  if (!order.explained) return false;
  attempt.settle(Rung::algorithm, "order of summation: " + order.order);
  *warn = order.warn;
  return true;
}

bool Ladder::try_algorithms(Attempt& attempt) {
  const auto k = static_cast<std::size_t>(attempt.output());
  if (!op_.algorithms) return false;
  // In deviations of the algorithm, because its errors vary with the place in the tile: half of F(4,3)'s may look
  // honest.
  const auto errs_everywhere = [&](const EnclosedTensor& e) {
    if (attempt.rounding_median() >= kAlgorithmMedian) return true;
    const Attempt::Medians m = attempt.medians_in(e);
    return m.error > 0 && m.error >= kAlgorithmMedian * m.rounding;
  };
  const std::vector<NamedAlgorithm> algorithms = op_.algorithms(call_);
  const auto enclosed = [&](const NamedAlgorithm& algorithm, const Profile& profile) -> const EnclosedTensor& {
    return yardstick(algorithm.name + profile.name, [&] { return algorithm.enclose(profile); })[k];
  };
  const std::vector<std::int64_t> elements = attempt.standing_out();
  for (const NamedAlgorithm& algorithm : algorithms)
    for (const Profile& profile : profiles_) {
      const EnclosedTensor& e = enclosed(algorithm, profile);
      if (errs_everywhere(e) && attempt.explain(Rung::algorithm, e, profile.name, algorithm.name)) return true;
    }
  // Where it errs no more than rounding nearly everywhere, its emulation must err in the same places.
  const StandsOut out{attempt.output(), attempt.got(), elements, attempt.error(), attempt.rounding_deviation()};
  for (const NamedAlgorithm& algorithm : algorithms)
    for (const Profile& profile : profiles_)
      if (k == 0 && algorithm.emulate && errs_as_emulated(algorithm, profile, out) &&
          attempt.explain(Rung::algorithm, enclosed(algorithm, profile), profile.name, algorithm.name))
        return true;
  return false;
}

bool Ladder::try_approximation(Attempt& attempt) {
  const auto k = static_cast<std::size_t>(attempt.output());
  Profile profile = profiles_.front();
  const int digits = std::min(profile.inner.digits, profile.storage.digits);
  const double largest = largest_approximation_ulps(digits);
  const int last = static_cast<int>(op_.formulas.size()) - 1;
  profile.function_ulps = largest;
  const bool has_functions =
      op_.elementary || rounding(profile, last)[k].radius != rounding(profiles_.front(), last)[k].radius;
  if (!has_functions) return false;
  // Kernels for 16-bit storage work in f32, where the floor was measured.
  const double floor = op_.approximation_floor * profile.inner.unit_roundoff() *
                       (op_.approximation_scale ? op_.approximation_scale(call_) : 1);
  const auto attempt_with = [&](double ulps, double absolute, const std::string& name) {
    profile.function_ulps = ulps;
    EnclosedTensor wide = rounding(profile, last)[k];
    widen(wide, op_.elementary ? ulps : 0, absolute, profile.storage);
    return attempt.explain(Rung::approximation, wide, profile.name, name);
  };
  // The measured floor first: it says more than a multiple of ulps that happens to reach.
  if (floor > 0 && attempt_with(0, floor,
                                fmt::format("absolute: within {:g} u sup|f| ({})", op_.approximation_floor,
                                            op_.approximation_source)))
    return true;
  for (double ulps = 8; ulps <= largest; ulps *= 2)
    if (attempt_with(ulps, 0, fmt::format("elementary function within {:g} ulp", ulps))) return true;
  for (double ulps = 8; floor > 0 && ulps <= largest; ulps *= 2)
    if (attempt_with(ulps, floor,
                     fmt::format("absolute: within {:g} u sup|f| and {:g} ulp", op_.approximation_floor, ulps)))
      return true;
  return false;
}

bool Ladder::try_flush_to_zero(Attempt& attempt) {
  const auto k = static_cast<std::size_t>(attempt.output());
  const int last = static_cast<int>(op_.formulas.size()) - 1;
  for (Profile profile : profiles_) {
    profile.flush_to_zero = true;
    if (attempt.explain(Rung::flush_to_zero, rounding(profile, last)[k], profile.name, "subnormals treated as zero"))
      return true;
    profile.function_ulps = largest_approximation_ulps(std::min(profile.inner.digits, profile.storage.digits));
    if (attempt.explain(Rung::flush_to_zero, rounding(profile, last)[k], profile.name,
                        "subnormals treated as zero, elementary functions approximated"))
      return true;
  }
  return false;
}

bool Ladder::try_precision(Attempt& attempt) {
  const auto k = static_cast<std::size_t>(attempt.output());
  const int digits = format_of(working_dtype(op_, call_)).digits;
  struct Operands {
    Format format;
    Rounding rounding;
    const char* name;
  };
  static constexpr Operands kOperands[] = {{kTF32, Rounding::nearest_even, "tf32 operands"},
                                           {kTF32, Rounding::toward_zero, "tf32 operands, truncated"},
                                           {kTF32, Rounding::nearest_away, "tf32 operands, ties away"},
                                           {kF16, Rounding::nearest_even, "f16 operands"},
                                           {kBF16, Rounding::nearest_even, "bf16 operands"},
                                           {kF32, Rounding::nearest_even, "f32 operands"}};
  const Profile& profile = profiles_.front();
  // Operands are narrowed for the whole tensor: a single NaN among accurate numbers is no f16 that overflowed.
  constexpr double kMost = 0.5;
  for (const Operands& o : kOperands) {
    if (o.format.digits >= digits || op_.product_inputs.empty()) continue;
    const EnclosedTensor& e = narrowed(profile, o.format, o.rounding)[k];
    if (attempt.share_explained(e) > kMost && attempt.explain(Rung::precision, e, profile.name, o.name)) return true;
  }
  // A narrow accumulation errs nearly everywhere: it explains no single wrong element among correctly rounded ones. Of
  // its radius little is left after a hundred terms in bf16 (zeros are possible then): both yardsticks must hold for
  // every element.
  constexpr double kTooGood = 0.5;
  const auto accumulates = [&](const Profile& narrow) {
    const EnclosedTensor& e = rounding(narrow, static_cast<int>(op_.formulas.size()) - 1)[k];
    return attempt.share_too_good(e) <= kTooGood &&
           attempt.explain(Rung::precision, e, narrow.name, narrow.name, false);
  };
  const std::vector<double> got = attempt.got().to_doubles();
  for (const Format& format : {kF32, kF16, kBF16}) {
    if (format.digits >= std::min(digits, profile.sum.digits)) continue;
    if (!std::all_of(got.begin(), got.end(), [&](double y) { return representable(y, format) || std::isnan(y); }))
      continue;
    Profile narrow = profile;
    narrow.sum = narrow.inner = format;
    narrow.name = fmt::format("{} accumulation", format.name);
    if (accumulates(narrow)) return true;
  }
  // 16-bit storage whose sums run in storage, too.
  if (digits < 24) {
    Profile narrow = profiles_.back();
    narrow.sum = narrow.storage;
    narrow.name = fmt::format("{} accumulation", narrow.storage.name);
    if (accumulates(narrow)) return true;
    // Gradients of what is read twice are added into the result itself. Where most elements have one term the
    // yardsticks above cannot tell, and equal terms err alike; the same bits everywhere prove it.
    narrow.inner = narrow.storage;
    const std::string order = order_that_gives(op_, call_, attempt.output(), attempt.got(), narrow);
    if (!order.empty()) {
      attempt.settle(Rung::precision, narrow.name + ", " + order);
      return true;
    }
  }
  return false;
}

bool Ladder::try_conventions(Attempt& attempt) {
  return try_other_results(attempt) || try_convention_formulas(attempt);
}

bool Ladder::try_other_results(Attempt& attempt) {
  if (!op_.conventions) return false;
  const std::vector<Convention> conventions = op_.conventions(call_);
  const double normal = format_of(attempt.got().dtype()).lambda();
  for (const bool flushes : {false, true})
    for (const Convention& convention : conventions) {
      const auto k = static_cast<std::size_t>(attempt.output());
      if (k >= convention.outputs.size()) continue;
      const std::vector<double> y = attempt.got().to_doubles(), other = convention.outputs[k].to_doubles();
      std::vector<bool> accepts(y.size());
      for (std::size_t i = 0; i < y.size(); ++i)
        accepts[i] = y[i] == other[i] || (std::isnan(y[i]) && std::isnan(other[i])) ||
                     (flushes && y[i] == 0 && std::fabs(other[i]) < normal);
      const std::string name = convention.name + (flushes ? kFlushed : "");
      if (attempt.accept_remaining(Rung::convention, accepts, name)) return true;
    }
  return false;
}

bool Ladder::try_convention_formulas(Attempt& attempt) {
  const auto k = static_cast<std::size_t>(attempt.output());
  for (const bool flushes : {false, true})
    for (Profile profile : profiles_)
      for (std::size_t f = 0; f < op_.convention_formulas.size(); ++f) {
        profile.flush_to_zero = flushes;
        const int formula = static_cast<int>(op_.formulas.size() + f);
        const Yardstick& other = yardstick(fmt::format("{}/convention {}/{}", profile.name, formula, flushes),
                                           [&] { return enclose(op_, call_, profile, formula); });
        const std::string name = std::string(op_.convention_formulas[f]) + (flushes ? kFlushed : "");
        if (attempt.explain(Rung::convention, other[k], profile.name, name)) return true;
      }
  return false;
}

// Where inputs repeat, so do the errors of what is made from them, and the tensor stands out without being wrong: the
// same bits by an admissible formula prove it. (Operators that name their sums' terms are looked at term by term.)
bool Ladder::try_emulation(Attempt& attempt) {
  if (op_.reduction || !attempt.all_possible() || attempt.standing_out().empty()) return false;
  for (const Profile& profile : profiles_)
    if (const std::string way = order_that_gives(op_, call_, attempt.output(), attempt.got(), profile); !way.empty()) {
      attempt.settle(Rung::algorithm, "bit for bit: " + way);
      return true;
    }
  return false;
}

std::optional<Verdict> Ladder::quickly(int output, const Tensor& got, const Tensor& expected) {
  const auto k = static_cast<std::size_t>(output);
  const Profile& profile = profiles_.front();
  if (got.dtype() != DType::f32 || working_dtype(op_, call_) == DType::f64) return std::nullopt;
  QuickPass pass(op_, call_, output, got, expected, profile, std::string(op_.formulas[0]), with_figures_);
  if (const auto kept = kept_.find(key_of(profile, 0)); kept != kept_.end()) {
    pass.look(kept->second[k]);
    return pass.verdict();
  }
  if (first_.empty() || (first_[k].empty() && got.size() > 0)) {
    // What an order must explain, or is judged again, needs the whole yardstick all the same.
    const int streamed = expects_order_ || streamed_ ? -1 : output;
    const auto take = [&](std::int64_t first, std::span<const Enclosure<double>> values) { pass.look(first, values); };
    first_ = enclosures(op_, call_, profile, 0, streamed, take);
    streamed_ = first_[k].empty() && got.size() > 0;
    if (streamed_) return pass.verdict();
  }
  pass.look(0, first_[k]);
  return pass.verdict();
}

Verdict Ladder::judge(int output, const Tensor& got, const Tensor& expected) {
  if (auto v = quickly(output, got, expected)) return *std::move(v);
  Attempt attempt(op_, call_, output, got, expected);
  bool warn = false;
  static_cast<void>(  // the first that settles the attempt ends it
      attempt.done() ||
      (expects_order_ && (try_definition(attempt) || try_order(attempt, explain_bit_for_bit, &warn))) ||
      try_rounding(attempt) || try_order(attempt, explain_bit_for_bit, &warn) || try_algorithms(attempt) ||
      try_order(attempt, explain_by_order, &warn) || try_emulation(attempt) || try_approximation(attempt) ||
      try_flush_to_zero(attempt) || try_precision(attempt) || try_conventions(attempt));
  Verdict v = attempt.verdict();
  v.warn = warn;
  return v;
}

}  // namespace opdiff
