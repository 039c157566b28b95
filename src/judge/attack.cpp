#include "judge/attack.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "judge/judge.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

constexpr std::size_t kShown = 8;

struct HonestWay {
  SumOrder order;
  int formula;
  Profile profile;
  std::string name;
};

std::string_view order_name(SumOrder::Kind kind) {
  static constexpr std::string_view kNames[] = {"sequential", "reversed", "pairwise", "lanes", "shuffled", "wide"};
  return kNames[static_cast<int>(kind)];
}

// One honest way to compute, drawn at random: order of summation, FMA, formula, profile.
HonestWay draw_arithmetic(const MetaOperator& op, DType dtype, Rng& rng) {
  static constexpr SumOrder::Kind kKinds[] = {SumOrder::Kind::sequential, SumOrder::Kind::reversed,
                                              SumOrder::Kind::pairwise,   SumOrder::Kind::lanes,
                                              SumOrder::Kind::shuffled,   SumOrder::Kind::wide};
  static constexpr int kLaneCounts[] = {2, 4, 8, 16};
  HonestWay a;
  a.order = {rng.pick(kKinds), rng.pick(kLaneCounts), rng.chance(0.5), rng.next()};
  a.formula = static_cast<int>(rng.integer(0, static_cast<std::int64_t>(op.formulas.size()) - 1));
  a.profile = profiles_differ(dtype) && rng.chance(0.5) ? inner_storage(dtype) : inner_f32(dtype);
  a.name =
      fmt::format("{}{}{}, {}, {}", order_name(a.order.kind),
                  a.order.kind == SumOrder::Kind::lanes ? fmt::format(" {}", a.order.lanes) : "",
                  a.order.fused ? ", fused" : "", op.formulas[static_cast<std::size_t>(a.formula)], a.profile.name);
  return a;
}

std::vector<Tensor> compute(const MetaOperator& op, const Call& call, const HonestWay& a) {
  const SumOrder outer = working_order();
  working_order() = a.order;
  std::vector<Tensor> outputs = work(op, call, a.profile, a.formula);
  working_order() = outer;
  return outputs;
}

std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors, const Call& call) {
  std::vector<const Tensor*> result;
  for (std::size_t k = 0; k < call.node().outputs.size(); ++k)
    result.push_back(k < tensors.size() ? &tensors[k] : nullptr);
  return result;
}

std::string describe(const MetaOperator& op, DType dtype, std::uint64_t seed, int index, const std::string& what,
                     const Verdict& v) {
  return fmt::format(
      "{} {} seed {} case {} [{}]: {} {} z rms {:.3g} (limit {:.3g}) max {:.3g} excess {:.3g}; worst got {:.9g} centre "
      "{:.9g} radius {:.3g} "
      "deviation {:.3g} {}",
      op.name, dtype_name(dtype), seed, index, what, to_string(v.rung), v.explanation, v.z_rms, v.z_rms_limit, v.z_max,
      v.excess, v.worst.got, v.worst.centre, v.worst.radius, v.worst.deviation, v.note);
}

// A verdict that tells the user something: a warning or worse, or an algorithm by name. (An error of a few deviations
// all over a 3 x 3 convolution is what Winograd's algorithm makes, too, and a constant input summed in one lane errs by
// 20: nobody can tell these from a fault of that size, so they are counted apart, as `named`.)
bool noticed(const Verdict& v) { return v.rung >= Rung::algorithm; }

bool honest(Rung rung) { return rung <= Rung::algorithm; }

}  // namespace

Sample make_sample(const MetaOperator& op, DType dtype, std::uint64_t seed, std::uint64_t index) {
  SampleContext context(op.name, dtype, seed, index);
  return op.sample(context);
}

std::vector<DType> float_types(const MetaOperator& op) {
  std::vector<DType> types;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    if (op.types & type_bit(dtype)) types.push_back(dtype);
  return types;
}

HonestAttack attack_from_below(const MetaOperator& op, DType dtype, std::uint64_t seed, int count, int first) {
  HonestAttack result;
  if (!op.kernels.working) return result;
  for (int index = first; index < first + count; ++index) {
    const Sample sample = make_sample(op, dtype, seed, static_cast<std::uint64_t>(index));
    const std::vector<const Tensor*> inputs = sample.pointers();
    const Call call(sample.node, sample.opset, inputs);
    if (!is_float(working_dtype(op, call))) continue;
    NodeJudge judge(sample.node, sample.opset, inputs);
    Rng rng(seed, "honest " + std::string(op.name), static_cast<std::uint64_t>(index));
    for (int way = 0; way < 3; ++way) {
      const HonestWay a = draw_arithmetic(op, dtype, rng);
      const std::vector<Tensor> got = compute(op, call, a);
      for (const Verdict& v : judge.judge(pointers(got, call))) {
        ++result.cases;
        if (!honest(v.rung)) {
          ++result.alarms;
          if (result.first_alarms.size() < kShown)
            result.first_alarms.push_back(describe(op, dtype, seed, index, sample.note + ", " + a.name, v));
          continue;
        }
        if (v.rung == Rung::algorithm) continue;
        result.z_rms = std::max(result.z_rms, v.z_rms);
        result.z_max = std::max(result.z_max, v.z_max);
        if (std::isfinite(v.excess)) result.excess = std::max(result.excess, v.excess);
      }
    }
  }
  return result;
}

namespace {

// The yardstick that the faults are measured in: the widest that the `rounding` rung admits.
EnclosedTensor widest(const MetaOperator& op, const Call& call, DType dtype, std::size_t output) {
  const Profile profile = profiles_differ(dtype) ? inner_storage(dtype) : inner_f32(dtype);
  EnclosedTensor e = enclose(op, call, profile, 0)[output];
  for (int f = 1; f < static_cast<int>(op.formulas.size()); ++f) {
    const EnclosedTensor other = enclose(op, call, profile, f)[output];
    for (std::size_t i = 0; i < e.deviation.size(); ++i) {
      e.radius[i] = std::max(e.radius[i], other.radius[i]);
      e.deviation[i] = std::max(e.deviation[i], other.deviation[i]);
      e.overflow[i] |= other.overflow[i];
    }
  }
  return e;
}

// Elements that can carry a fault of some deviations: finite, with a deviation, and far enough from the end of the
// range.
std::vector<std::size_t> usable(const EnclosedTensor& e, const Tensor& honest) {
  std::vector<std::size_t> elements;
  const Format& format = format_of(e.dtype);
  for (std::size_t i = 0; i < e.centre.size(); ++i) {
    const double size = std::fabs(e.centre[i]) + 1000 * e.deviation[i];
    if (std::isfinite(honest.at(static_cast<std::int64_t>(i))) && e.deviation[i] > 0 &&
        size < format.max_finite() / 2 && std::fabs(e.centre[i]) > 4 * format.lambda() && !e.overflow[i])
      elements.push_back(i);
  }
  return elements;
}

// How many of the elements are independent: distinct values, groups once.
std::int64_t independent(const MetaOperator& op, const Call& call, std::size_t output, const EnclosedTensor& e,
                         const std::vector<std::size_t>& elements) {
  std::set<double> values;
  std::set<std::int64_t> groups;
  const Shape strides = strides_of(e.shape);
  const std::vector<int> axes = op.group_axes ? op.group_axes(call, static_cast<int>(output)) : std::vector<int>();
  for (const std::size_t i : elements) {
    values.insert(e.centre[i]);
    std::int64_t group = 0;
    for (const int a : axes)
      group = group * e.shape[static_cast<std::size_t>(a)] + static_cast<std::int64_t>(i) /
                                                                 strides[static_cast<std::size_t>(a)] %
                                                                 e.shape[static_cast<std::size_t>(a)];
    groups.insert(group);
  }
  const auto distinct = static_cast<std::int64_t>(values.size());
  return op.group_axes ? std::min(distinct, static_cast<std::int64_t>(groups.size())) : distinct;
}

// honest + size * deviation at `elements`, away from the centre, rounded away from it: off by at least that much.
Tensor plant(const EnclosedTensor& e, const Tensor& honest, const std::vector<std::size_t>& elements, double size) {
  std::vector<double> y = honest.to_doubles();
  const Format& format = format_of(e.dtype);
  for (const std::size_t i : elements) {
    const double off = (y[i] - e.centre[i]) - (e.low.empty() ? 0 : e.low[i]);
    const double sign = off < 0 ? -1 : 1;
    double target = e.centre[i] + sign * size * e.deviation[i];
    if (std::fabs(off) > size * e.deviation[i]) target = y[i];
    double rounded = round_to(target, format);
    if ((rounded - e.centre[i]) * sign < size * e.deviation[i])
      rounded = round_to(rounded + sign * ulp(rounded, format), format);
    y[i] = rounded;
  }
  return Tensor::from_doubles(e.dtype, e.shape, y);
}

constexpr double kSizes[] = {1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 50};

class Planter {
 public:
  Planter(const MetaOperator& op, DType dtype, std::uint64_t seed, FaultAttack& result)
      : op_(op), dtype_(dtype), seed_(seed), result_(result) {}

  // Which output of the node the faults are planted in.
  void choose(std::size_t output) { output_ = output; }

  // Plants growing faults; notes the smallest that is caught (all larger ones must be, too) and misses at promised
  // sizes.
  void grow(NodeJudge& judge, const Call& call, const EnclosedTensor& e, const Tensor& honest,
            const std::vector<std::size_t>& elements, double promised, Caught& caught, const std::string& what,
            int index) {
    double smallest = 0;
    for (const double size : kSizes) {
      const Tensor planted = plant(e, honest, elements, size);
      const Verdict v = judge_chosen(judge, call, planted);
      const bool seen = noticed(v);
      if (seen && smallest == 0) smallest = size;
      if (!seen) smallest = 0;
      if (size != promised) continue;
      ++caught.planted;
      caught.caught += seen;
      caught.named += v.rung == Rung::algorithm;
      if (!seen && result_.first_missed.size() < kShown)
        result_.first_missed.push_back(
            describe(op_, dtype_, seed_, index, fmt::format("{} {} deviations", what, size), v));
    }
    if (smallest > 0) caught.smallest = std::max(caught.smallest, smallest);
  }

  void gross(NodeJudge& judge, const Call& call, const Tensor& wrong, const std::string& what, int index) {
    const Verdict v = judge_chosen(judge, call, wrong);
    ++result_.gross.planted;
    const bool seen = noticed(v);
    result_.gross.caught += seen;
    result_.gross.named += v.rung == Rung::algorithm;
    if (!seen && result_.first_missed.size() < kShown)
      result_.first_missed.push_back(describe(op_, dtype_, seed_, index, what, v));
  }

 private:
  Verdict judge_chosen(NodeJudge& judge, const Call& call, const Tensor& tensor) const {
    std::vector<const Tensor*> got(call.node().outputs.size(), nullptr);
    got[output_] = &tensor;
    return judge.judge(got)[output_];
  }

  const MetaOperator& op_;
  DType dtype_;
  std::uint64_t seed_;
  FaultAttack& result_;
  std::size_t output_ = 0;
};

// Changes that no honest arithmetic makes, for operators without a deviation too.
// `deviation`: of each element, empty where nothing is rounded.
void plant_gross(const MetaOperator& op, Planter& planter, NodeJudge& judge, const Call& call, std::size_t output,
                 const Tensor& right, const std::vector<double>& deviation, Rng& rng, int index) {
  if (right.size() == 0) return;
  const std::int64_t at = rng.integer(0, right.size() - 1);
  if (op.unspecified)
    if (const std::vector<bool> open = op.unspecified(call, static_cast<int>(output));
        !open.empty() && open[static_cast<std::size_t>(at)])
      return;
  Tensor wrong = right.clone();
  const double value = right.at(at);
  if (is_float(right.dtype())) {
    if (!std::isnan(value)) {
      std::vector<double> y = right.to_doubles();
      y[static_cast<std::size_t>(at)] = std::nan("");
      planter.gross(judge, call, Tensor::from_doubles(right.dtype(), right.shape(), y), "NaN for a number", index);
      // A number that rounding may turn over has no wrong sign.
      const double noise = deviation.empty() ? 0 : deviation[static_cast<std::size_t>(at)];
      if (std::fabs(value) > std::max(1e-3, 100 * noise) && std::isfinite(value)) {
        y[static_cast<std::size_t>(at)] = -value;
        planter.gross(judge, call, Tensor::from_doubles(right.dtype(), right.shape(), y), "wrong sign", index);
      }
    }
  } else {
    wrong.mutable_bytes()[static_cast<std::size_t>(at) * dtype_size(right.dtype())] ^= std::byte{1};
    planter.gross(judge, call, wrong, "one bit", index);
  }
}

// One of the floating outputs that the node names; the first where there is one only.
std::size_t draw_output(const MetaOperator& op, const Call& call, Rng& rng) {
  const Types types = *infer_call(op, call);
  std::vector<std::size_t> candidates;
  for (std::size_t k = 0; k < call.node().outputs.size(); ++k)
    if (call.wants(k) && is_float(types[k].dtype) && (k == 0 || !op.integer_output)) candidates.push_back(k);
  return candidates.size() > 1 ? rng.pick(candidates) : candidates.empty() ? 0 : candidates[0];
}

}  // namespace

FaultAttack attack_from_above(const MetaOperator& op, DType dtype, std::uint64_t seed, int count, int first) {
  FaultAttack result;
  Planter planter(op, dtype, seed, result);
  for (int index = first; index < first + count; ++index) {
    const Sample sample = make_sample(op, dtype, seed, static_cast<std::uint64_t>(index));
    const std::vector<const Tensor*> inputs = sample.pointers();
    const Call call(sample.node, sample.opset, inputs);
    NodeJudge judge(sample.node, sample.opset, inputs);
    Rng rng(seed, "fault " + std::string(op.name), static_cast<std::uint64_t>(index));
    const bool computes = op.kernels.working && is_float(working_dtype(op, call));
    const std::size_t output = draw_output(op, call, rng);
    planter.choose(output);
    if (!computes) {
      plant_gross(op, planter, judge, call, output, values(op, call)[output], {}, rng, index);
      continue;
    }
    const Tensor honest = compute(op, call, draw_arithmetic(op, dtype, rng))[output];
    const EnclosedTensor e = widest(op, call, dtype, output);
    const bool overflows = std::any_of(e.overflow.begin(), e.overflow.end(), [](auto o) { return o != 0; });
    if (!overflows) plant_gross(op, planter, judge, call, output, honest, e.deviation, rng, index);
    // Exact sums: the next number is impossible.
    for (std::size_t i = 0; i < e.centre.size(); ++i)
      if (e.radius[i] == 0 && std::isfinite(e.centre[i]) && e.centre[i] != 0 && !e.overflow[i]) {
        std::vector<double> y = honest.to_doubles();
        y[i] += std::copysign(ulp(y[i], format_of(dtype)), y[i]);
        if (!std::isfinite(round_to(y[i], format_of(dtype)))) break;
        planter.gross(judge, call, Tensor::from_doubles(dtype, e.shape, y), "exact result off by an ulp", index);
        break;
      }
    const std::vector<std::size_t> elements = usable(e, honest);
    if (elements.empty()) continue;
    planter.grow(judge, call, e, honest,
                 {elements[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(elements.size()) - 1))]},
                 kPromisedElement, result.element, "one element", index);
    if (elements.size() == e.centre.size() && independent(op, call, output, e, elements) >= 16)
      planter.grow(judge, call, e, honest, elements, kPromisedWhole, result.whole, "whole tensor", index);
    // One slice along the axis with the fewest slices.
    const Shape strides = strides_of(e.shape);
    for (std::size_t axis = 0; axis < e.shape.size(); ++axis) {
      if (e.shape[axis] < 2) continue;
      std::vector<std::size_t> slice;
      const std::int64_t k = rng.integer(0, e.shape[axis] - 1);
      for (const std::size_t i : elements)
        if (static_cast<std::int64_t>(i) / strides[axis] % e.shape[axis] == k) slice.push_back(i);
      if (static_cast<std::int64_t>(slice.size()) * e.shape[axis] != static_cast<std::int64_t>(e.centre.size()) ||
          independent(op, call, output, e, slice) < 16)
        continue;
      planter.grow(judge, call, e, honest, slice, kPromisedWhole, result.row, "one slice", index);
      break;
    }
  }
  return result;
}

}  // namespace opdiff
