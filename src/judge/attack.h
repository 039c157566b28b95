// Attacks on the oracle with no framework: honest arithmetic of many orders must pass (from below), planted faults must
// not (from above). The laws in tests/ops and `opdiff trust` are made of these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "judge/verdict.h"
#include "ops/op.h"

namespace opdiff {

// Sample number `index` of an operator; depends on operator, dtype, seed and index alone.
Sample make_sample(const MetaOperator& op, DType dtype, std::uint64_t seed, std::uint64_t index);

// Dtypes that an operator can be attacked in: its floating types.
std::vector<DType> float_types(const MetaOperator& op);

struct HonestAttack {
  std::int64_t cases = 0;                 // judged tensors
  std::int64_t alarms = 0;                // on a rung beyond `algorithm`
  double z_rms = 0, z_max = 0;            // largest of healthy verdicts on `rounding`
  double excess = 0;                      // largest error / radius
  std::vector<std::string> first_alarms;  // up to 8: sample, arithmetic, verdict
};

// `count` samples from number `first` on, each computed by Working arithmetic in several orders of summation, formulas
// and profiles.
HonestAttack attack_from_below(const MetaOperator& op, DType dtype, std::uint64_t seed, int count, int first = 0);

struct Caught {
  std::int64_t planted = 0, caught = 0;
  std::int64_t named = 0;  // of those caught: `algorithm`, by name (Winograd, an order of summation that errs as much)
  double smallest =
      0;  // smallest size (in deviations) at which every one of this size and larger was caught; 0: none tried
};

struct FaultAttack {
  Caught whole;    // every element off by the same number of deviations, N >= 16 independent elements
  Caught element;  // one element
  Caught row;      // one slice of at least 16 elements
  Caught gross;    // exact results off by one ulp, NaN for a number, a dropped term, a wrong sign
  std::vector<std::string> first_missed;  // up to 8, at or above the promised size
};

// Promised sizes (docs/numerics.md, section 9): 4 deviations on the whole tensor or a slice of it, 10 on one element.
inline constexpr double kPromisedWhole = 4, kPromisedElement = 10;

FaultAttack attack_from_above(const MetaOperator& op, DType dtype, std::uint64_t seed, int count, int first = 0);

}  // namespace opdiff
