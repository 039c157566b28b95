#include "report/status.h"

#include <algorithm>
#include <map>
#include <set>

namespace opdiff {

int rank(RunStatus status) {
  switch (status) {
    case RunStatus::clean: return 0;
    case RunStatus::cannot_run: return 1;
    case RunStatus::defect: return 2;
    case RunStatus::crashed: return 3;
  }
  return 0;
}

namespace {

class Lines {
 public:
  Lines(const CompareResult& result, const Policy& policy) : result_(result), policy_(policy) {}

  std::vector<StatusLine> collect() {
    for (const Culprit& culprit : result_.culprits) add_culprit(culprit);
    for (const BackendInfo& backend : result_.comparison.backends) add_backend(backend.spec);
    if (!policy_.accept_known) add_known();
    for (const auto& [name, whole] : result_.comparison.whole_model) add_whole(name, whole);
    if (policy_.fail_on) add_rungs();
    add_deaths();
    if (!result_.comparison.stopped.empty()) add_stopped();
    if (result_.comparison.interrupted)
      add(RunStatus::cannot_run, "interrupted: what follows is what was done until then");
    std::stable_sort(lines_.begin(), lines_.end(), [](const StatusLine& a, const StatusLine& b) {
      return std::pair(rank(a.status), !a.by_policy) > std::pair(rank(b.status), !b.by_policy);
    });
    return std::move(lines_);
  }

 private:
  void add(RunStatus status, std::string reason) { lines_.push_back({status, std::move(reason)}); }
  void refuse(std::string reason) { lines_.push_back({RunStatus::defect, std::move(reason), true}); }
  void add_death(const std::string& spec, std::string reason) {
    dead_.insert(spec);
    add(RunStatus::crashed, std::move(reason));
  }

  // Deaths that no node and no whole model shows: while culprits were looked for, or in a run that was repeated.
  void add_deaths() {
    std::map<std::string, std::vector<const BackendDeath*>> unseen;
    for (const BackendDeath& death : result_.comparison.deaths) {
      if (dead_.count(death.backend) == 0) unseen[death.backend].push_back(&death);
    }
    for (const auto& [spec, deaths] : unseen) {
      const std::string more = deaths.size() == 1 ? "" : fmt::format(" ({} times in all)", deaths.size());
      add(RunStatus::crashed,
          fmt::format("{}: {}{}: {}", spec, to_string(deaths.front()->kind), more, deaths.front()->reason));
    }
  }

  // Nobody was blamed yet: what is proven wrong is told node by node.
  void add_stopped() {
    add(RunStatus::cannot_run, "stopped: " + result_.comparison.stopped);
    for (const NodeResult& node : result_.comparison.nodes) {
      for (const auto& [spec, outcome] : node.backends) {
        if (outcome.known || outcome.rung() != Rung::defect) continue;
        add(RunStatus::defect, fmt::format("{} ({}) on {}: defect", node.id, node.op, spec));
      }
    }
  }

  void add_culprit(const Culprit& culprit) {
    const std::string where = fmt::format("{} ({}) on {}", fmt::join(culprit.nodes, ", "), culprit.op, culprit.backend);
    blamed_.insert(culprit.backend);
    if (policy_.accept_known && is_known_divergence(result_.comparison, culprit)) return;
    if (is_death(culprit.outcome)) {
      add_death(culprit.backend, fmt::format("{}: {}: {}", where, to_string(culprit.outcome), culprit.evidence));
    } else {
      add(RunStatus::defect, fmt::format("{}: {}", where, to_string(culprit.stage)));
    }
  }

  void add_backend(const std::string& spec) {
    int ran = 0, unsupported = 0, gradients = 0, gradients_unsupported = 0;
    for (const NodeResult& node : result_.comparison.nodes) {
      const auto found = node.backends.find(spec);
      if (found == node.backends.end()) continue;
      const NodeOutcome& outcome = found->second;
      if (outcome.ok()) ++ran;
      if (outcome.outcome == OutcomeKind::unsupported) ++unsupported;
      if (node.backward) {
        ++gradients;
        gradients_unsupported += outcome.outcome == OutcomeKind::unsupported;
      }
      if (is_death(outcome.outcome) && !is_culprit(node.id, spec)) {
        add_death(spec, fmt::format("{} ({}) on {}: {}: {}", node.id, node.op, spec, to_string(outcome.outcome),
                                    outcome.reason));
      } else if (outcome.outcome == OutcomeKind::error && !is_culprit(node.id, spec)) {
        add(RunStatus::cannot_run, fmt::format("{} ({}) on {}: {}", node.id, node.op, spec, outcome.reason));
        told_.insert(spec);
      }
    }
    if (ran == 0 && unsupported > 0) {
      add(RunStatus::cannot_run, fmt::format("{} computes none of the model's operators", spec));
    } else if (gradients > 0 && gradients == gradients_unsupported) {
      add(RunStatus::cannot_run, fmt::format("{} computes none of the model's gradients", spec));
    }
  }

  void add_whole(const std::string& name, const WholeModelResult& whole) {
    const Reading& reading = whole.reading;
    if (is_death(reading.outcome)) {
      add_death(name, fmt::format("whole model on {}: {}: {}", name, to_string(reading.outcome), reading.reason));
    } else if (reading.outcome == OutcomeKind::error && blamed_.count(name) == 0 && told_.count(name) == 0) {
      add(RunStatus::cannot_run, fmt::format("whole model on {}: {}", name, reading.reason));
    }
    if (reading.wrong && policy_.fail_on && *policy_.fail_on <= Rung::unlikely && blamed_.count(name) == 0) {
      refuse(fmt::format("whole model on {}: off by {:.3g} times the noise floor (--fail-on {})", name, reading.error(),
                         to_string(*policy_.fail_on)));
    }
    // Too far from the reference is no proof: honest errors add up. Other shapes, and NaN for numbers, do not.
    if (reading.outcome == OutcomeKind::ok && (reading.wrong_shape || reading.non_finite_differs) && !is_blamed(name)) {
      add(RunStatus::defect, fmt::format("whole model on {}: {}; no operator alone is proven wrong", name,
                                         reading.wrong_shape ? reading.reason : "other values are infinite or NaN"));
    }
    if (whole.contract && whole.contract->broken > 0) {
      refuse(fmt::format("whole model on {}: {} of {} output elements break --rtol/--atol", name,
                         whole.contract->broken, whole.contract->elements));
    }
  }

  // Wrong values that are nobody's culprit. A refusal is told above: it cannot run, known or not.
  void add_known() {
    for (const NodeResult& node : result_.comparison.nodes) {
      for (const auto& [spec, outcome] : node.backends) {
        if (!outcome.known || !outcome.ok() || is_culprit(node.id, spec)) continue;
        add(RunStatus::defect, fmt::format("{} ({}) on {}: known divergence: {} ({})", node.id, node.op, spec,
                                           outcome.known->reason, outcome.known->link));
      }
    }
  }

  void add_rungs() {
    for (const NodeResult& node : result_.comparison.nodes) {
      for (const auto& [spec, outcome] : node.backends) {
        const Verdict* verdict = outcome.worst();
        if (verdict == nullptr || verdict->rung < *policy_.fail_on || policy_.accepts(*verdict, node)) continue;
        if (is_culprit(node.id, spec) || outcome.known) continue;
        refuse(fmt::format("{} ({}) on {}: {}{}{} (--fail-on {})", node.id, node.op, spec, to_string(verdict->rung),
                           verdict->explanation.empty() ? "" : ": ", verdict->explanation,
                           to_string(*policy_.fail_on)));
      }
    }
  }

  // A backend with culprits, or an assignment of operators ("FIRST with OP=SPEC") in which it takes part.
  bool is_blamed(const std::string& name) const {
    return std::any_of(blamed_.begin(), blamed_.end(), [&](const std::string& spec) {
      return name == spec || (name.find(" with ") != std::string::npos && name.find(spec) != std::string::npos);
    });
  }

  bool is_culprit(const std::string& node, const std::string& spec) const {
    return std::any_of(result_.culprits.begin(), result_.culprits.end(), [&](const Culprit& culprit) {
      return culprit.backend == spec &&
             std::find(culprit.nodes.begin(), culprit.nodes.end(), node) != culprit.nodes.end();
    });
  }

  const CompareResult& result_;
  const Policy& policy_;
  std::set<std::string> blamed_, told_, dead_;
  std::vector<StatusLine> lines_;
};

}  // namespace

std::string_view to_string(RunStatus status) {
  switch (status) {
    case RunStatus::clean: return "clean";
    case RunStatus::defect: return "defect";
    case RunStatus::cannot_run: return "cannot-run";
    case RunStatus::crashed: return "crashed";
  }
  return "clean";
}

bool Policy::accepts(const Verdict& verdict, const NodeResult& node) const {
  return std::any_of(accept.begin(), accept.end(), [&](const auto& entry) {
    return entry.first == verdict.rung && (verdict.explanation.find(entry.second) != std::string::npos ||
                                           verdict.profile.find(entry.second) != std::string::npos ||
                                           node.id == entry.second || node.op == entry.second);
  });
}

bool is_known_divergence(const Comparison& comparison, const Culprit& culprit) {
  return std::all_of(culprit.nodes.begin(), culprit.nodes.end(), [&](const std::string& id) {
    return std::any_of(comparison.nodes.begin(), comparison.nodes.end(), [&](const NodeResult& node) {
      const auto found = node.backends.find(culprit.backend);
      return node.id == id && found != node.backends.end() && found->second.known;
    });
  });
}

std::vector<StatusLine> status_lines(const CompareResult& result, const Policy& policy) {
  return Lines(result, policy).collect();
}

RunStatus worst_status(const std::vector<StatusLine>& lines) {
  return lines.empty() ? RunStatus::clean : lines.front().status;
}

}  // namespace opdiff
