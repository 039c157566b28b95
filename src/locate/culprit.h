// The smallest set of nodes whose implementation by a backend causes the error, with the proof by substitution. Plain
// data, made by locate/localise.h, printed by report/.
#pragma once

#include <string>
#include <vector>

#include "locate/minimise.h"
#include "locate/stage.h"
#include "plan/probe.h"

namespace opdiff {

// One run of a substitution: how far from the reference, and whether that is past the limit.
struct Measurement {
  double error = 0;
  bool wrong = false;
  std::string reason;  // of a run that failed
};

// The three runs that prove a blame (design.md, section 5.4). Any cut un-fuses, so all have the same cuts.
struct Substitution {
  std::string measured_at;  // "model outputs", or the culprit's own outputs when the model's do not show the error
  std::string unit;         // "noise floor", or "limit" (the verdict's own limits: 1 is just allowed)
  double limit = 0;         // above it, in that unit, a result is wrong
  // Kernel: the culprit on the same backend, alone between the cuts; the error must stay. Fusion: each node of the
  // culprit alone; the error must go.
  Measurement placebo;
  // The culprit on the reference, the rest on the backend: the error must go.
  Measurement necessary;
  // The culprit on the backend, the rest on the reference: must be wrong.
  Measurement sufficient;
  bool placebo_holds = false, necessary_holds = false, sufficient_holds = false;

  bool proven() const { return placebo_holds && necessary_holds && sufficient_holds; }
};

struct Culprit {
  NodeSet indices;
  std::vector<std::string> nodes;  // ids
  std::string op;                  // of a segment "Transpose+MatMul+Add"
  std::string backend;             // spec
  Stage stage = Stage::kernel;
  std::string pass;  // "A+B": the failure needs both; "A|B": each makes it; empty: none or not known
  OutcomeKind outcome = OutcomeKind::ok;  // ok: wrong values; else what the segment does
  Rung rung = Rung::defect;
  std::string evidence;   // one line: the worst element against its bound, the odds, the error message
  bool localised = true;  // false: one of too many; its own bounds are the proof, stage and pass were not looked for
  Substitution substitution;
  CapturedCase captured;  // the culprit as a case of its own; empty when it could not be run again
  std::string repeat;     // the command that repeats the finding; filled in by report/
};

}  // namespace opdiff
