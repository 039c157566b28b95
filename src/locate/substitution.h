// Proof of a blame by substitution with a placebo (design.md, section 5.4): which three assignments to run, and what
// their numbers mean. Used by locate/localise.h.
#pragma once

#include <set>
#include <string_view>

#include "locate/localise.h"

namespace opdiff {

inline constexpr std::string_view kNoiseFloorUnit = "noise floor";
inline constexpr std::string_view kVerdictUnit = "limit";

// Measures at the model's outputs first; where the error does not reach them, at the culprit's own outputs. The other
// culprits, and nodes that fail alone, are the reference's in all three runs, so that only this one's error is seen.
Substitution substitute(const LocaliseInput& input, const Probes& probes, const Culprit& culprit,
                        const std::vector<Culprit>& all, const NodeSet& failing);

// The connected, convex parts into which the set falls when everything else is cut out: no path from a part leads
// through an outside node back into it.
std::vector<NodeSet> convex_parts(const Graph& graph, const std::set<int>& nodes);

}  // namespace opdiff
