// The same anomaly once: what was observed, case by case, as few findings as explain it, each with a signature and a
// count.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "forms/error_pattern.h"
#include "forms/form.h"
#include "judge/verdict.h"
#include "workers/backend.h"

namespace opdiff {

// What distinguishes anomalies for certain; the pattern of the error and the region are found over all of a group.
struct AnomalyKind {
  std::string op;     // "Conv"; of a segment "Transpose+MatMul"
  std::string stage;  // locate/stage.h's names; "unknown" where no culprit was found
  std::string pass;
  std::string backend;
  std::string dtype;
  std::string outcome;                    // "wrong values", "error: ...", "crash: ...", ...
  OutcomeKind failure = OutcomeKind::ok;  // where there are no values
  auto operator<=>(const AnomalyKind&) const = default;
};

struct Observation {
  AnomalyKind kind;
  Rung rung = Rung::defect;
  ErrorPatterns patterns;  // all that could be; empty where there are no values
  std::string form, side;
  Parameters parameters;
  std::string evidence;  // one line
  std::string repeat;    // the command that shows it again
};

struct Finding {
  AnomalyKind kind;
  std::string pattern;
  std::int64_t count = 0;
  Rung rung = Rung::defect;                   // the worst
  std::map<std::string, std::int64_t> forms;  // where it was seen
  Parameters common;                          // values that all its cases share, of parameters that vary among them all
  std::string evidence, repeat;               // of the first

  std::string signature() const;  // one line
};

// Few findings: in each group of one kind, the smallest number of patterns that explains every observation (greedy set
// cover), the more specific ones first among equals.
std::vector<Finding> find(const std::vector<Observation>& observations);

}  // namespace opdiff
