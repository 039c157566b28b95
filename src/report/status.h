// What a finished comparison comes to: the exit status and the word in result.json, under the user's own rules. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "locate/compare.h"

namespace opdiff {

// Defect: a culprit; a whole model of a wrong shape, or with other infinite or NaN values; what the user's rules
// refuse. A whole model that is only far from the reference, and has no culprit, is no proof: a warning, unless
// `fail_on`. Best first; the number is the program's exit status, the worst of a run is by rank(): a backend's death
// outranks a defect, a defect outranks what could not be run.
enum class RunStatus { clean = 0, defect = 1, cannot_run = 2, crashed = 3 };
int rank(RunStatus status);
std::string_view to_string(RunStatus status);  // "clean", "defect", "cannot-run", "crashed"

struct Policy {
  // A verdict at this rung or a worse one fails the run, unless accepted. By default only culprits do.
  std::optional<Rung> fail_on;
  // Verdicts of this rung whose explanation or profile has this text in it, or whose node or operator is so called.
  std::vector<std::pair<Rung, std::string>> accept;
  // Known divergences (known.toml) do not fail the run; without it they do, like any defect.
  bool accept_known = false;

  bool accepts(const Verdict& verdict, const NodeResult& node) const;
};

struct StatusLine {
  RunStatus status;
  std::string reason;      // one line, names backend and node
  bool by_policy = false;  // nothing is proven wrong: --fail-on, --rtol or --atol refuses it
};
// Whether each of its nodes, alone on that backend, is explained by an entry of known.toml.
bool is_known_divergence(const Comparison& comparison, const Culprit& culprit);

// Every reason why the run is not clean, the worst status first; empty when clean.
std::vector<StatusLine> status_lines(const CompareResult& result, const Policy& policy);
RunStatus worst_status(const std::vector<StatusLine>& lines);

}  // namespace opdiff
