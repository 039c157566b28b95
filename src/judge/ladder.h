// The rungs for floating-point results that an operator's formula encloses: tried in order, lazily, until every element
// is possible and the tensor plausible. docs/numerics.md, section 3.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "judge/verdict.h"
#include "ops/op.h"

namespace opdiff {

class Attempt;

class Ladder {
 public:
  // `call` must outlive the ladder. `expects_order`: NodeJudge::expect_order().
  Ladder(const MetaOperator& op, const Call& call, bool with_figures = true, bool expects_order = false);

  // `expected` is the correctly rounded output.
  Verdict judge(int output, const Tensor& got, const Tensor& expected);

 private:
  // A yardstick of all outputs, made once and kept for the next backend.
  using Yardstick = std::vector<EnclosedTensor>;
  const Yardstick& yardstick(const std::string& key, const std::function<Yardstick()>& make);
  // Profile `profile`, all formulas up to and including `last`, merged: the widest element by element.
  const Yardstick& rounding(const Profile& profile, int last);
  static std::string key_of(const Profile& profile, int last);
  // Operands narrowed to `format` before an otherwise honest evaluation.
  const Yardstick& narrowed(const Profile& profile, const Format& format, Rounding rounding);

  // The common case, before any yardstick is made.
  std::optional<Verdict> quickly(int output, const Tensor& got, const Tensor& expected);
  bool try_definition(Attempt& attempt);
  bool try_rounding(Attempt& attempt);
  // `explain` is one of judge/orders.h; `warn` as in OrderExplanation.
  template <class Explain>
  bool try_order(Attempt& attempt, const Explain& explain, bool* warn);
  bool try_algorithms(Attempt& attempt);
  bool try_emulation(Attempt& attempt);
  bool try_approximation(Attempt& attempt);
  bool try_flush_to_zero(Attempt& attempt);
  bool try_precision(Attempt& attempt);
  bool try_conventions(Attempt& attempt);
  bool try_other_results(Attempt& attempt);
  bool try_convention_formulas(Attempt& attempt);

  const MetaOperator& op_;
  const Call& call_;
  bool with_figures_, expects_order_;
  std::vector<Profile> profiles_;
  std::map<std::string, Yardstick> kept_;
  // What the first formula gives under the first profile, until somebody needs the yardstick.
  std::vector<std::vector<Enclosure<double>>> first_;
  bool streamed_ = false;  // one of its outputs went by piece by piece and is empty
};

}  // namespace opdiff
