// One operator on one backend: generated samples, many to an isolated graph, each result judged. What `opdiff check`
// and `opdiff trust` do.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "judge/verdict.h"
#include "ops/op.h"
#include "plan/known.h"
#include "workers/backend.h"

namespace opdiff {

struct CheckedCase {
  std::uint64_t index = 0;
  Sample sample;
  OutcomeKind outcome = OutcomeKind::ok;
  std::string reason;                      // of an outcome that is not ok
  std::vector<Verdict> verdicts;           // one an output
  Rung rung = Rung::exact;                 // the worst of them
  const KnownDivergence* known = nullptr;  // what explains the failure, of CheckOptions::known
};

struct CheckOptions {
  DType dtype = DType::f32;
  std::uint64_t seed = 1;
  std::uint64_t first = 0;  // index of the first sample
  int count = 100;
  std::span<const KnownDivergence> known;  // must outlive the check
};

struct OperatorCheck {
  std::string op, backend;
  DType dtype = DType::f32;
  std::int64_t cases = 0;  // that the backend ran
  std::int64_t unsupported = 0, errors = 0, deaths = 0, unproven = 0;
  std::int64_t known = 0;  // explained by an entry of known.toml: neither among the rungs nor among the errors
  std::array<std::int64_t, kRungCount> rungs{};
  std::map<std::string, std::int64_t> explanations;   // of rungs beyond `rounding`, in cases
  std::map<std::string, std::int64_t> reasons;        // of refusals, errors and deaths
  std::map<std::string, std::int64_t> known_reasons;  // "reason (link)"
  double z_rms = 0, z_max = 0, excess = 0;            // largest on `rounding`
  std::int64_t alarms() const {
    return rungs[static_cast<int>(Rung::unlikely)] + rungs[static_cast<int>(Rung::defect)];
  }
};

// `visit` sees every case in order of its index. Stops early, with what there is, when `*stop` is set.
OperatorCheck check_operator(const MetaOperator& op, Backend& backend, const CheckOptions& options,
                             const std::function<void(const CheckedCase&)>& visit = {},
                             const std::atomic<bool>* stop = nullptr);

// Whether the backend says that it has the operator and the dtype at all.
bool offers(const BackendInfo& info, const MetaOperator& op, DType dtype);

// The graph of one sample alone, as `opdiff check --save` writes it.
Graph sample_graph(const Sample& sample);

}  // namespace opdiff
