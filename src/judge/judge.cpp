#include "judge/judge.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "judge/figures.h"
#include "judge/ladder.h"
#include "judge/plausible.h"
#include "numerics/statistics.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

// NaN payloads and signs do not matter; zeros of both signs are equal unless data was only moved.
bool same_value(const Tensor& a, const Tensor& b, std::int64_t i, bool signed_zeros) {
  if (!is_float(a.dtype())) return a.int_at(i) == b.int_at(i);
  const double x = a.at(i), y = b.at(i);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  return x == y && (!signed_zeros || x != 0 || std::signbit(x) == std::signbit(y));
}

void describe_worst(Verdict& v, const Tensor& got, std::int64_t index, double centre) {
  v.worst.index = index;
  v.worst.coordinates = unravel(index, got.shape());
  v.worst.got = got.at(index);
  v.worst.centre = centre;
}

// Results that have one right value, bit for bit.
Verdict judge_exactly(const MetaOperator& op, const Call& call, int output, const Tensor& expected, const Tensor& got) {
  Verdict v;
  v.profile = "exact";
  v.elements = got.size();
  const std::vector<bool> open = op.unspecified ? op.unspecified(call, output) : std::vector<bool>();
  const bool indices = output > 0 && op.accepts_integer;
  std::vector<std::int64_t> wrong;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    if (!open.empty() && open[static_cast<std::size_t>(i)]) {
      ++v.unspecified_elements;
      continue;
    }
    if (same_value(got, expected, i, op.movement != nullptr)) continue;
    if (indices && op.accepts_integer(call, output, i, got.int_at(i))) continue;
    wrong.push_back(i);
  }
  v.counts[static_cast<int>(Rung::exact)] = got.size() - static_cast<std::int64_t>(wrong.size());
  v.figures =
      classic_figures(got.to_doubles(), expected.to_doubles(), is_float(got.dtype()) ? format_of(got.dtype()) : kF64);
  if (wrong.empty()) return v;
  if (is_float(got.dtype())) {  // a conversion or a copy that reads or writes subnormals as zero
    const double lambda = format_of(got.dtype()).lambda();
    // Of a conversion also where the number was subnormal before it was rounded, or in its own format.
    const Tensor* x = op.movement || call.input_count() == 0 ? nullptr : call.tensor(0);
    const bool converts = x && is_float(x->dtype()) && x->shape() == got.shape();
    const auto tiny = [&](std::int64_t i) {
      if (std::fabs(expected.at(i)) < lambda) return true;
      return converts && std::fabs(x->at(i)) < std::max(lambda, format_of(x->dtype()).lambda());
    };
    const bool flushed = std::all_of(wrong.begin(), wrong.end(),
                                     [&](std::int64_t i) { return got.at(i) == 0 && expected.at(i) != 0 && tiny(i); });
    if (flushed) {
      v.rung = Rung::flush_to_zero;
      v.explanation = "subnormals treated as zero";
      v.counts[static_cast<int>(v.rung)] = static_cast<std::int64_t>(wrong.size());
      describe_worst(v, got, wrong.front(), expected.at(wrong.front()));
      return v;
    }
  }
  if (op.conventions)
    for (const Convention& convention : op.conventions(call)) {
      const auto k = static_cast<std::size_t>(output);
      if (k >= convention.outputs.size()) continue;
      if (!std::all_of(wrong.begin(), wrong.end(),
                       [&](std::int64_t i) { return same_value(got, convention.outputs[k], i, false); }))
        continue;
      v.rung = Rung::convention;
      v.explanation = convention.name;
      v.counts[static_cast<int>(v.rung)] = static_cast<std::int64_t>(wrong.size());
      describe_worst(v, got, wrong.front(), expected.at(wrong.front()));
      return v;
    }
  v.rung = Rung::defect;
  v.counts[static_cast<int>(v.rung)] = static_cast<std::int64_t>(wrong.size());
  v.excess = kInfinity;
  const std::int64_t worst = *std::max_element(wrong.begin(), wrong.end(), [&](std::int64_t a, std::int64_t b) {
    const double ea = std::fabs(got.at(a) - expected.at(a)), eb = std::fabs(got.at(b) - expected.at(b));
    return (std::isnan(ea) ? kInfinity : ea) < (std::isnan(eb) ? kInfinity : eb);
  });
  describe_worst(v, got, worst, expected.at(worst));
  v.note = fmt::format("{} of {} elements differ from the only right value", wrong.size(), got.size());
  return v;
}

// The reference's own bits: no yardstick is needed.
Verdict identical(const Tensor& got, const std::string& profile) {
  Verdict v;
  v.profile = profile;
  v.elements = v.counts[static_cast<int>(Rung::exact)] = got.size();
  for (std::int64_t i = 0; i < got.size(); ++i)
    if (std::isfinite(got.at(i))) {
      v.figures.psnr = HUGE_VAL;
      break;
    }
  return v;
}

Verdict unproven(const std::string& note, const Tensor* got) {
  Verdict v;
  v.unproven = true;
  v.note = note;
  v.elements = got ? got->size() : 0;
  v.unproven_elements = v.elements;
  return v;
}

// A drawn output: is the number of its true elements one that the probability explains? `shown` names the elements that
// say anything.
Verdict judge_drawn(const Tensor& got, const std::vector<bool>& shown, double probability) {
  Verdict v;
  v.profile = "drawn at random";
  v.elements = got.size();
  std::int64_t count = 0, trues = 0;
  for (std::int64_t i = 0; i < got.size(); ++i)
    if (shown[static_cast<std::size_t>(i)]) {
      ++count;
      trues += got.int_at(i) != 0;
    }
  v.odds = count == 0 ? 1 : binomial_tail(count, trues, probability);
  const bool impossible = (probability >= 1 && trues < count) || (probability <= 0 && trues > 0);
  if (impossible || v.odds < kOdds) {
    v.rung = impossible ? Rung::defect : Rung::unlikely;
    v.explanation = fmt::format("odds {:.0e}", std::max(v.odds, 1e-300));
    v.note = fmt::format("{} of {} elements are true, with a probability of {:g} each", trues, count, probability);
  }
  v.counts[static_cast<int>(v.rung)] = got.size();
  return v;
}

Verdict wrong_type(const TensorType& expected, const Tensor& got) {
  Verdict v;
  v.rung = Rung::defect;
  v.excess = kInfinity;
  v.elements = got.size();
  v.counts[static_cast<int>(Rung::defect)] = got.size();
  v.note =
      fmt::format("returned {}, expected {}", to_string(TensorType{got.dtype(), got.shape()}), to_string(expected));
  return v;
}

}  // namespace

std::string_view to_string(Rung rung) {
  static constexpr std::string_view kNames[kRungCount] = {"exact",         "rounding",      "algorithm",
                                                          "approximation", "flush-to-zero", "precision",
                                                          "convention",    "unlikely",      "defect"};
  return kNames[static_cast<int>(rung)];
}

std::optional<Rung> parse_rung(std::string_view name) {
  for (int k = 0; k < kRungCount; ++k)
    if (to_string(static_cast<Rung>(k)) == name) return static_cast<Rung>(k);
  return std::nullopt;
}

class NodeJudge::State {
 public:
  State(const Node& node, int opset, std::span<const Tensor* const> inputs)
      : node_(node), call_(node_, opset, inputs), op_(find_operator(node.domain, node.op)) {
    if (!op_) {
      refusal_ = fmt::format("no reference for operator {}{}{}", node.domain, node.domain.empty() ? "" : ".", node.op);
      return;
    }
    if (auto types = infer_call(*op_, call_))
      types_ = *std::move(types);
    else
      refusal_ = types.error().message;
  }

  std::vector<Verdict> judge(std::span<const Tensor* const> got) {
    if (refusal_.empty() && op_->random_output && op_->random_output(call_, kDrawn)) return judge_given_drawn(got);
    std::vector<Verdict> verdicts;
    for (std::size_t k = 0; k < got.size(); ++k) {
      if (!got[k])
        verdicts.emplace_back();
      else if (!refusal_.empty())
        verdicts.push_back(unproven(refusal_, got[k]));
      else if (k >= types_.size())
        verdicts.push_back(unproven("an output that the operator does not have", got[k]));
      else if (got[k]->dtype() != types_[k].dtype || got[k]->shape() != *types_[k].shape)
        verdicts.push_back(wrong_type(types_[k], *got[k]));
      else
        verdicts.push_back(judge_output(static_cast<int>(k), *got[k]));
    }
    return verdicts;
  }

  void give_right_outputs(std::vector<Tensor> outputs) { values_ = std::move(outputs); }
  void leave_out_figures() { with_figures_ = false; }
  void expect_order() { expects_order_ = true; }

 private:
  static constexpr int kDrawn = 1;  // the output that is random, where one is

  // The random output is held against its odds and taken as given for the others. Where it was not returned, output 0
  // shows it.
  std::vector<Verdict> judge_given_drawn(std::span<const Tensor* const> got) {
    const double probability = *op_->random_output(call_, kDrawn);
    const auto fits = [&](std::size_t k) {
      return k < got.size() && got[k] && got[k]->dtype() == types_[k].dtype && got[k]->shape() == *types_[k].shape;
    };
    const bool returned = types_.size() > kDrawn && fits(kDrawn);
    std::vector<const Tensor*> inputs;
    for (int k = 0; k < call_.input_count(); ++k) inputs.push_back(call_.tensor(k));
    inputs.resize(static_cast<std::size_t>(op_->given) + 1, nullptr);
    Tensor drawn;
    std::vector<bool> shown;
    if (returned) {
      drawn = *got[kDrawn];
      shown.assign(static_cast<std::size_t>(drawn.size()), true);
    } else if (fits(0)) {
      drawn = op_->shown_by(call_, *got[0]);
      for (std::int64_t i = 0; i < drawn.size(); ++i)
        shown.push_back(call_.tensor(0)->at(i) != 0 && std::isfinite(call_.tensor(0)->at(i)));
    } else {
      drawn = Tensor::zeros(DType::boolean, *types_[0].shape);
      shown.assign(static_cast<std::size_t>(drawn.size()), false);
    }
    inputs.back() = &drawn;
    std::vector<Verdict> verdicts = State(node_, call_.opset(), inputs).judge(got);
    Verdict odds = judge_drawn(drawn, shown, probability);
    const std::size_t k = returned ? kDrawn : 0;
    if (k < verdicts.size() && (returned || odds.rung > verdicts[k].rung)) verdicts[k] = std::move(odds);
    return verdicts;
  }

  Verdict judge_output(int k, const Tensor& got) {
    if (values_.empty()) values_ = values(*op_, call_);
    const Tensor& expected = values_[static_cast<std::size_t>(k)];
    const bool exactly = op_->exact || op_->movement || !is_float(got.dtype()) || (k > 0 && op_->integer_output);
    if (got.bit_equal(expected) && (!op_->unspecified || op_->unspecified(call_, k).empty())) {
      Verdict v = identical(got, exactly ? "exact" : "correctly rounded");
      if (!exactly && got.size() > 0) describe_worst(v, got, 0, got.at(0));
      return v;
    }
    if (exactly) return judge_exactly(*op_, call_, k, expected, got);
    if (!ladder_) ladder_ = std::make_unique<Ladder>(*op_, call_, with_figures_, expects_order_);
    return ladder_->judge(k, got, expected);
  }

  Node node_;
  Call call_;
  const MetaOperator* op_;
  std::string refusal_;
  Types types_;
  std::vector<Tensor> values_;
  bool with_figures_ = true, expects_order_ = false;
  std::unique_ptr<Ladder> ladder_;
};

NodeJudge::NodeJudge(const Node& node, int opset, std::span<const Tensor* const> inputs)
    : state_(std::make_unique<State>(node, opset, inputs)) {}
NodeJudge::~NodeJudge() = default;

void NodeJudge::give_right_outputs(std::vector<Tensor> outputs) { state_->give_right_outputs(std::move(outputs)); }

void NodeJudge::leave_out_figures() { state_->leave_out_figures(); }

void NodeJudge::expect_order() { state_->expect_order(); }

std::vector<Verdict> NodeJudge::judge(std::span<const Tensor* const> got) { return state_->judge(got); }

std::vector<Verdict> judge_node(const Node& node, int opset, std::span<const Tensor* const> inputs,
                                std::span<const Tensor* const> got) {
  return NodeJudge(node, opset, inputs).judge(got);
}

}  // namespace opdiff
