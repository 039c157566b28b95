// What faults that are worked out at each run add to an output (fed_fault.cpp); the table of kinds names them.
#pragma once

#include "workers/fault.h"

namespace opdiff {

// fault.size deviations (numerics.md, section 1; the largest over the admissible formulas) of each element, or of one.
Expected<std::vector<double>> add_deviations(const FaultyCall& call, const Fault& fault);

// Of gradients; each is the difference between a plausible wrong gradient and the right one.
Expected<std::vector<double>> add_unsummed(const FaultyCall& call, const Fault& fault);
Expected<std::vector<double>> add_mean_for_sum(const FaultyCall& call, const Fault& fault);
Expected<std::vector<double>> add_undivided(const FaultyCall& call, const Fault& fault);
Expected<std::vector<double>> add_wrong_kink(const FaultyCall& call, const Fault& fault);

}  // namespace opdiff
