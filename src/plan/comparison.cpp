#include "plan/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace opdiff {

const Verdict* NodeOutcome::worst() const {
  const Verdict* worst = nullptr;
  for (const auto& [name, verdict] : outputs) {
    const bool worse =
        worst == nullptr || verdict.rung > worst->rung ||
        (verdict.rung == worst->rung &&
         (verdict.excess > worst->excess || (verdict.excess == worst->excess && verdict.z_max > worst->z_max)));
    if (worse) worst = &verdict;
  }
  return worst;
}

Rung NodeOutcome::rung() const {
  const Verdict* verdict = worst();
  return verdict == nullptr ? Rung::exact : verdict->rung;
}

bool is_death(OutcomeKind kind) {
  return kind == OutcomeKind::crash || kind == OutcomeKind::timeout || kind == OutcomeKind::out_of_memory;
}

double Reading::error() const {
  if (outcome != OutcomeKind::ok || wrong_shape || non_finite_differs) return std::numeric_limits<double>::infinity();
  // 3 / 10: the limit of the root mean square over the limit of a single element (docs/numerics.md, section 6).
  return std::max(rms, max * (kReadingLimit / 10));
}

}  // namespace opdiff
