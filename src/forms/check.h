// `opdiff forms check`: every side of a form on every backend, plainly (its nodes alone, and the whole with the
// optimiser off) and whole with the optimiser on, each held against the oracle and the sides against each other.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "forms/backends.h"
#include "forms/coverage.h"
#include "forms/findings.h"
#include "forms/oracle.h"
#include "plan/options.h"

namespace opdiff {

struct FormCheckOptions {
  DType dtype = DType::f32;
  bool gradient = false;
  int cases = 20;
  int bundle = 10;         // cases of one graph
  Parameters fixed;        // parameters that are not drawn
  CompareOptions compare;  // seed, threads, progress, interruption
  std::string command;     // how a finding is repeated, up to the form's name: "opdiff forms check"
};

// A number's worst over the cases, in noise floors.
struct WorstReading {
  double rms = 0, max = 0;
  void keep(const Reading& reading);
};

// What it costs to run one way; of the timed case.
struct FormCost {
  std::vector<double> wall_ms;  // one a run
  std::vector<double> life_ms;  // the median of each process that ran it
  std::optional<std::int64_t> peak_bytes;
  std::optional<std::vector<Kernel>> kernels;

  std::optional<double> median_ms() const;  // of the processes' medians
  double spread_ms() const;                 // between the quartiles
};

// One side on one backend.
struct FormRow {
  std::string form, side, backend, plain_backend, dtype, direction;
  std::int64_t cases = 0;   // that ran
  std::int64_t honest = 0;  // of these, neither wrong nor known to be: the figures are theirs
  std::int64_t unsupported = 0, errors = 0, known = 0, alarms = 0;
  std::map<std::string, std::int64_t> reasons;   // of what did not run
  std::array<std::int64_t, kRungCount> rungs{};  // of the nodes alone: the worst of each case
  std::map<std::string, std::int64_t> explanations;
  WorstReading plain, whole;  // against the oracle, optimiser off and on
  WorstReading difference;    // of this side, optimiser on, against the first side, optimiser off
  double relative_error = 0;  // optimiser on: largest error by the largest right value
  FormCost plain_cost, whole_cost;

  // "clean", "approximation", ..., "unsupported", "wrong".
  std::string verdict() const;
};

struct FormCheck {
  std::vector<FormRow> rows;
  std::vector<Observation> observations;
  std::vector<std::string> notes;  // what was not done, and why: one line each
};

// Errors: a condition that the fixed parameters break, a backend that cannot be opened.
Expected<FormCheck> check_form(const Form& form, const std::vector<FormBackend>& backends, Workers& workers,
                               Coverage& coverage, const FormCheckOptions& options);

}  // namespace opdiff
