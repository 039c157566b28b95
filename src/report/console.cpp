#include "report/console.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace opdiff {
namespace {

// Longest lists on the first screen; the rest is in --details and result.json.
constexpr std::size_t kMostCulprits = 5;
constexpr std::size_t kMostReasons = 4;
constexpr std::size_t kMostWarnings = 6;

std::string plural(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string error_text(double error, bool failed = false) { return failed ? "no value" : fmt::format("{:.3g}", error); }

// Columns as wide as their widest cell, the first two to the left, the others to the right.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::string& indent, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += i < left ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.{}f} MB", static_cast<double>(bytes) / 1e6, bytes < 1'000'000 ? 3 : 1);
}

class Console {
 public:
  Console(const RunRecord& record, const ConsoleOptions& options)
      : record_(record), comparison_(record.result.comparison), options_(options) {}

  std::string text() {
    headline();
    for (std::size_t i = 0; i < std::min(kMostCulprits, record_.result.culprits.size()); ++i) {
      culprit(record_.result.culprits[i]);
    }
    if (record_.result.culprits.size() > kMostCulprits) {
      text_ += fmt::format("\n  and {} more, see --details or result.json\n",
                           plural(record_.result.culprits.size() - kMostCulprits, "culprit"));
    }
    const auto apart = std::count_if(record_.result.culprits.begin(), record_.result.culprits.end(),
                                     [](const Culprit& culprit) { return !culprit.localised; });
    if (apart > 0) {
      text_ += fmt::format("\n  {} of {} are listed by their own bounds, without stage and substitution (--localise)\n",
                           apart, plural(record_.result.culprits.size(), "culprit"));
    }
    reasons();
    backends();
    warnings();
    if (options_.details) details();
    footer();
    return std::move(text_);
  }

 private:
  std::string coloured(std::string_view code, const std::string& text) const {
    return options_.colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }
  std::string red(const std::string& text) const { return coloured("1;31", text); }
  std::string green(const std::string& text) const { return coloured("1;32", text); }
  std::string yellow(const std::string& text) const { return coloured("1;33", text); }

  void headline() {
    const RunStatus status = worst_status(record_.status);
    const std::size_t culprits = record_.result.culprits.size();
    std::string verdict;
    std::size_t known = 0;
    for (const NodeResult& node : comparison_.nodes)
      for (const auto& [spec, outcome] : node.backends) known += outcome.known && outcome.ok();
    if (known > 0 && status == RunStatus::clean) {
      verdict = yellow("ACCEPTED") +
                fmt::format(": {}: nothing wrong but {}", record_.model_file, plural(known, "known divergence"));
    } else if (culprits > 0) {
      verdict = red(fmt::format("{}: {} in {}", status == RunStatus::crashed ? "CRASHED" : "DEFECT",
                                plural(culprits, "culprit"), record_.model_file));
    } else if (status == RunStatus::clean && !unexplained().empty()) {
      verdict = yellow("NO CULPRIT") + fmt::format(": {}: the whole model is off on {}, no operator is proven wrong",
                                                   record_.model_file, fmt::join(unexplained(), ", "));
    } else if (status == RunStatus::clean) {
      verdict = green("CLEAN") + fmt::format(": {}, {} on {}, nothing wrong{}", record_.model_file,
                                             plural(comparison_.nodes.size(), "node"),
                                             plural(comparison_.backends.size(), "backend"),
                                             all_checked() ? "" : " in what could be checked: see the warnings");
    } else if (record_.status.front().by_policy) {
      verdict =
          red("REFUSED") +
          fmt::format(": {}: nothing is proven wrong; the limits that were asked for are not met", record_.model_file);
    } else {
      const std::array<std::string_view, 4> words = {"CLEAN", "DEFECT", "CANNOT RUN", "CRASHED"};
      verdict = red(std::string(words[static_cast<std::size_t>(status)])) + ": " + record_.model_file;
    }
    text_ += verdict + "\n";
  }

  bool all_checked() const {
    return comparison_.unproven.empty() &&
           std::none_of(comparison_.nodes.begin(), comparison_.nodes.end(), [](const NodeResult& node) {
             return std::any_of(node.backends.begin(), node.backends.end(),
                                [](const auto& outcome) { return outcome.second.outcome == OutcomeKind::unsupported; });
           });
  }

  // Whole models that are suspect by the noise floor, which alone is no proof.
  std::vector<std::string> unexplained() const {
    std::vector<std::string> names;
    for (const auto& [name, whole] : comparison_.whole_model) {
      if (whole.reading.wrong) names.push_back(name);
    }
    return names;
  }

  void culprit(const Culprit& culprit) {
    text_ += fmt::format("\n  {} ({}) on {}\n", coloured("1", fmt::format("{}", fmt::join(culprit.nodes, ", "))),
                         culprit.op, culprit.backend);
    if (culprit.localised)
      line("stage", fmt::format("{}{}", to_string(culprit.stage),
                                culprit.pass.empty() ? "" : "; repaired by disable=" + passes_off(culprit.pass)));
    line("how bad", culprit.outcome == OutcomeKind::ok
                        ? fmt::format("{}: {}", to_string(culprit.rung), culprit.evidence)
                        : fmt::format("{}: {}", to_string(culprit.outcome), culprit.evidence));
    if (is_known_divergence(comparison_, culprit)) {
      for (const NodeResult& node : comparison_.nodes) {
        if (node.id != culprit.nodes.front()) continue;
        const KnownDivergence& known = *node.backends.at(culprit.backend).known;
        line("known", fmt::format("known divergence: {}, {}", known.reason, known.link));
      }
    }
    const Substitution& proof = culprit.substitution;
    if (!proof.unit.empty()) {
      const bool segment = culprit.nodes.size() > 1;
      line("how sure", fmt::format("{}; error at {} in units of the {}, limit {:g}:",
                                   proof.proven() ? "proven by substitution" : "NOT proven by substitution",
                                   proof.measured_at, proof.unit, proof.limit));
      measurement("this on the backend, the rest on the reference", proof.sufficient, proof.sufficient_holds);
      measurement("this on the reference, the rest on the backend", proof.necessary, proof.necessary_holds);
      measurement(
          segment ? "placebo: the backend, these nodes one by one" : "placebo: the same cuts, all on the backend",
          proof.placebo, proof.placebo_holds);
    }
    if (!culprit.localised)
      line("how sure", "by its operator's own bounds; not localised, there are too many culprits");
    line("repeat", culprit.repeat);
  }

  static std::string passes_off(const std::string& pass) {
    if (pass.find('+') == std::string::npos) {
      std::string all = pass;
      std::replace(all.begin(), all.end(), '|', '+');
      return all;
    }
    std::string either = pass;
    for (std::size_t at = 0; (at = either.find('+', at)) != std::string::npos; at += 4) either.replace(at, 1, " or ");
    return either;
  }

  void line(std::string_view label, const std::string& text) { text_ += fmt::format("    {:<9} {}\n", label, text); }
  void measurement(std::string_view what, const Measurement& measured, bool holds) {
    text_ +=
        fmt::format("              {:<46} {:>8}  {}{}\n", what, error_text(measured.error, !measured.reason.empty()),
                    measured.wrong ? "wrong" : "right", holds ? "" : "  (this speaks against the blame)");
  }

  void reasons() {
    std::vector<const StatusLine*> other;
    for (const StatusLine& line : record_.status) {
      const bool told =
          std::any_of(record_.result.culprits.begin(), record_.result.culprits.end(), [&](const Culprit& c) {
            return line.reason.rfind(fmt::format("{} ({}) on {}:", fmt::join(c.nodes, ", "), c.op, c.backend), 0) == 0;
          });
      if (!told) other.push_back(&line);
    }
    if (other.empty()) return;
    text_ += "\n";
    for (std::size_t i = 0; i < std::min(kMostReasons, other.size()); ++i) {
      text_ += fmt::format("  {}: {}\n", red(std::string(to_string(other[i]->status))), other[i]->reason);
    }
    if (other.size() > kMostReasons) text_ += fmt::format("  and {} more reasons\n", other.size() - kMostReasons);
  }

  struct Tally {
    std::array<std::int64_t, kRungCount> rungs{};
    std::int64_t unproven = 0, unsupported = 0, failed = 0, missing = 0, known = 0;
    double own_error = 0, wall_ms = 0;
    bool timed = false;
  };
  Tally tally(const std::string& spec) const {
    Tally result;
    for (const NodeResult& node : comparison_.nodes) {
      const auto found = node.backends.find(spec);
      if (found == node.backends.end()) {
        ++result.missing;
        continue;
      }
      const NodeOutcome& outcome = found->second;
      if (outcome.outcome == OutcomeKind::unsupported) {
        ++result.unsupported;
      } else if (outcome.known) {
        ++result.known;
      } else if (!outcome.ok()) {
        ++result.failed;
      } else if (!node.has_reference) {
        ++result.unproven;
      } else {
        ++result.rungs[static_cast<std::size_t>(outcome.rung())];
      }
      result.own_error = std::max(result.own_error, outcome.own_error);
      if (outcome.wall_ms) {
        result.wall_ms += *outcome.wall_ms;
        result.timed = true;
      }
    }
    return result;
  }

  void backends() {
    std::vector<std::vector<std::string>> rows = {{"backend", "whole model", "nodes alone", "ms whole", "ms nodes"}};
    for (const BackendInfo& info : comparison_.backends) {
      const Tally counts = tally(info.spec);
      std::string nodes;
      const auto add = [&](std::int64_t count, std::string_view word) {
        if (count > 0) nodes += fmt::format("{}{} {}", nodes.empty() ? "" : ", ", count, word);
      };
      for (int rung = 0; rung < kRungCount; ++rung) {
        add(counts.rungs[static_cast<std::size_t>(rung)], to_string(static_cast<Rung>(rung)));
      }
      add(counts.known, counts.known == 1 ? "known divergence" : "known divergences");
      add(counts.unproven, "unproven");
      add(counts.unsupported, "unsupported");
      add(counts.failed, "failed");
      add(counts.missing, "not run");
      const auto whole = comparison_.whole_model.find(info.spec);
      const bool known = whole != comparison_.whole_model.end();
      const std::string version =
          info.version.empty() || info.spec.find('@') != std::string::npos ? "" : " " + info.version;
      rows.push_back({info.spec + version, known ? whole_text(whole->second) : "not run", nodes,
                      known && whole->second.wall_ms ? fmt::format("{:.2f}", *whole->second.wall_ms) : "-",
                      counts.timed ? fmt::format("{:.2f}", counts.wall_ms) : "-"});
    }
    for (const auto& [name, whole] : comparison_.whole_model) {
      const bool backend = std::any_of(comparison_.backends.begin(), comparison_.backends.end(),
                                       [&, &key = name](const BackendInfo& info) { return info.spec == key; });
      if (!backend) rows.push_back({name, whole_text(whole), "", "-", "-"});
    }
    text_ += "\n" + table(rows, "  ", 3);
    for (const auto& [name, whole] : comparison_.whole_model) {
      if (const std::string text = answers(whole); !text.empty()) text_ += fmt::format("  {}: {}\n", name, text);
      if (!whole.explanation.empty()) text_ += fmt::format("  {}: {}\n", name, whole.explanation);
    }
  }

  static std::string whole_text(const WholeModelResult& whole) {
    const Reading& reading = whole.reading;
    if (reading.outcome != OutcomeKind::ok) return std::string(to_string(reading.outcome));
    if (reading.wrong_shape) return "wrong: " + reading.reason;
    std::string text = reading.error() == 0 ? "bit-identical to the reference"
                                            : fmt::format("{}, {} x noise floor", reading.wrong ? "WRONG" : "right",
                                                          error_text(reading.error()));
    if (reading.repeats_differ) text += ", repeats differ";
    return text;
  }

  // Of a wrong model the answers say nothing new, and any output of two axes looks like a classifier's.
  static std::string answers(const WholeModelResult& whole) {
    std::string text;
    if (!whole.classifier) return text;
    const ClassifierResult& answers = *whole.classifier;
    if (answers.right) {
      text =
          fmt::format("{} of {} labels right (reference: {})", *answers.right, answers.rows, *answers.reference_right);
    }
    if (answers.flips > 0 && (!whole.reading.wrong || answers.right)) {
      text += fmt::format("{}{} of {} answers differ from the reference's, {} of them by less than the noise",
                          text.empty() ? "" : "; ", answers.flips, answers.rows, answers.flips_inside_noise);
    }
    return text;
  }

  void warnings() {
    // First what was not checked: a verdict on a part of the model says nothing of the rest.
    std::vector<std::string> lines = not_run();
    for (std::string& text : unproven()) lines.push_back(std::move(text));
    for (const NodeResult& node : comparison_.nodes) {
      for (const auto& [spec, outcome] : node.backends) {
        const Verdict* verdict = outcome.worst();
        const bool told = std::any_of(record_.result.culprits.begin(), record_.result.culprits.end(),
                                      [&, &key = spec](const Culprit& c) {
                                        return c.backend == key && c.nodes == std::vector<std::string>{node.id};
                                      });
        if (outcome.known && !told) {
          lines.push_back(fmt::format("{} ({}) on {}: known divergence: {}, {}", node.id, node.op, spec,
                                      outcome.known->reason, outcome.known->link));
        }
        if (verdict == nullptr || !node.has_reference || outcome.known) continue;
        const bool warning =
            verdict->warn || (verdict->rung >= Rung::approximation && verdict->rung <= Rung::convention);
        const bool unconfirmed =
            std::any_of(record_.result.unconfirmed.begin(), record_.result.unconfirmed.end(),
                        [&, &key = spec](const auto& pair) { return pair.node == node.id && pair.backend == key; });
        if (!warning && !unconfirmed) continue;
        lines.push_back(fmt::format("{} ({}) on {}: {}{}{}", node.id, node.op, spec, to_string(verdict->rung),
                                    verdict->explanation.empty() ? "" : ": ", verdict->explanation));
      }
    }
    if (lines.empty()) return;
    text_ += "\n";
    const std::size_t shown = options_.details ? lines.size() : std::min(kMostWarnings, lines.size());
    for (std::size_t i = 0; i < shown; ++i) text_ += fmt::format("  {} {}\n", yellow("warning:"), lines[i]);
    if (shown < lines.size())
      text_ += fmt::format("  and {} (--details)\n", plural(lines.size() - shown, "more warning"));
  }

  // By backend the nodes that it does not offer, the most frequent reasons by name.
  std::vector<std::string> not_run() const {
    std::vector<std::string> lines;
    for (const BackendInfo& info : comparison_.backends) {
      std::map<std::string, std::size_t> reasons;
      std::size_t count = 0;
      for (const NodeResult& node : comparison_.nodes) {
        const auto found = node.backends.find(info.spec);
        if (found == node.backends.end() || found->second.outcome != OutcomeKind::unsupported) continue;
        ++reasons[found->second.reason.empty() ? "operator " + node.op : found->second.reason];
        ++count;
      }
      if (count == 0) continue;
      std::vector<std::pair<std::size_t, std::string>> sorted;
      for (const auto& [reason, times] : reasons) sorted.emplace_back(times, reason);
      std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
      std::string text;
      for (std::size_t i = 0; i < std::min(kMostReasons, sorted.size()); ++i)
        text += fmt::format("{}{}{}", i > 0 ? "; " : "", sorted[i].second,
                            sorted[i].first > 1 ? fmt::format(" ({}x)", sorted[i].first) : "");
      if (sorted.size() > kMostReasons) text += "; ...";
      lines.push_back(fmt::format("{} does not run {} of {}: {}", info.spec, count,
                                  plural(comparison_.nodes.size(), "node"), text));
    }
    return lines;
  }

  // By operator the nodes that have no meta-operator: what compares them, and how far they are apart.
  std::vector<std::string> unproven() const {
    struct Operator {
      std::vector<std::string> nodes;
      std::map<std::string, double> errors;  // by backend that computes it
    };
    std::map<std::string, Operator> operators;
    for (const NodeResult& node : comparison_.nodes) {
      if (node.has_reference) continue;
      Operator& entry = operators[node.op];
      entry.nodes.push_back(node.id);
      for (const auto& [spec, outcome] : node.backends) {
        if (!outcome.ok()) continue;
        double& error = entry.errors[spec];
        error = std::max(error, outcome.own_error);
      }
    }
    std::vector<std::string> lines;
    for (const auto& [op, entry] : operators) {
      std::vector<std::string> names(entry.nodes.begin(),
                                     entry.nodes.begin() + std::min<std::ptrdiff_t>(3, std::ssize(entry.nodes)));
      if (entry.nodes.size() > names.size()) names.push_back("...");
      std::string compared;
      if (entry.errors.size() == 1) {
        compared = fmt::format("only {} computes it, nothing checks it", entry.errors.begin()->first);
      } else if (!entry.errors.empty()) {
        const auto first = std::find_if(comparison_.backends.begin(), comparison_.backends.end(),
                                        [&](const BackendInfo& info) { return entry.errors.count(info.spec) > 0; });
        for (const auto& [spec, error] : entry.errors)
          if (spec != first->spec)
            compared += fmt::format("{}{} {}", compared.empty() ? "" : "; ", spec,
                                    error == 0 ? "gives the same as " + first->spec
                                               : fmt::format("differs from {} by {:.3g} at most", first->spec, error));
      }
      lines.push_back(fmt::format("unproven, no meta-operator of ours: {} ({}): {}", op, fmt::join(names, ", "),
                                  compared.empty() ? "nobody computes it" : compared));
    }
    return lines;
  }

  void details() {
    std::vector<std::vector<std::string>> rows = {{"node", "op", "backend", "rung", "explained by", "own error",
                                                   "inherited", "z rms", "z max", "excess", "ms", "peak"}};
    for (const NodeResult& node : comparison_.nodes) {
      for (const BackendInfo& info : comparison_.backends) {
        const auto found = node.backends.find(info.spec);
        if (found == node.backends.end()) continue;
        const NodeOutcome& outcome = found->second;
        const Verdict* verdict = outcome.worst();
        std::vector<std::string> row = {node.id, node.op, info.spec};
        if (!outcome.ok() || verdict == nullptr) {
          row.insert(row.end(), {std::string(to_string(outcome.outcome)), outcome.reason.substr(0, 60)});
        } else {
          const std::string how = verdict->explanation.empty() ? verdict->profile : verdict->explanation;
          row.insert(row.end(), {node.has_reference ? std::string(to_string(verdict->rung)) : "unproven", how,
                                 fmt::format("{:.3g}", outcome.own_error),
                                 outcome.inherited_error ? fmt::format("{:.3g}", *outcome.inherited_error) : "-",
                                 fmt::format("{:.3g}", verdict->z_rms), fmt::format("{:.3g}", verdict->z_max),
                                 fmt::format("{:.3g}", verdict->excess),
                                 outcome.wall_ms ? fmt::format("{:.3f}", *outcome.wall_ms) : "-",
                                 outcome.peak_bytes ? megabytes(*outcome.peak_bytes) : "-"});
        }
        rows.push_back(std::move(row));
      }
    }
    text_ += "\n" + table(rows, "  ", 5);
  }

  void footer() {
    text_ += fmt::format("\n  seed {}", record_.seed);
    if (record_.wall_seconds > 0) text_ += fmt::format(", {:.1f} s", record_.wall_seconds);
    if (!record_.out.empty()) text_ += fmt::format("; every number: {}", (record_.out / "result.json").string());
    if (!options_.details) text_ += "; per node: --details";
    text_ += "\n";
  }

  const RunRecord& record_;
  const Comparison& comparison_;
  const ConsoleOptions& options_;
  std::string text_;
};

}  // namespace

std::string console_report(const RunRecord& record, const ConsoleOptions& options) {
  return Console(record, options).text();
}

}  // namespace opdiff
