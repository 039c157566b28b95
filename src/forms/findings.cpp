#include "forms/findings.h"

#include <algorithm>

namespace opdiff {
namespace {

// The pattern that explains most of what is left; of equals the more specific one.
std::string best_pattern(const std::vector<const Observation*>& left) {
  static const std::vector<std::string> kSpecific = {"non-finite", "wrong shape", "scaled",
                                                     "shifted",    "zeros",       "one element"};
  const auto rank = [](const std::string& pattern) {
    if (pattern == "scattered") return kSpecific.size() + 2;
    const auto at = std::find(kSpecific.begin(), kSpecific.end(), pattern);
    return at == kSpecific.end() ? kSpecific.size() + 1 : static_cast<std::size_t>(at - kSpecific.begin());
  };
  std::map<std::string, std::int64_t> counts;
  for (const Observation* o : left)
    for (const std::string& pattern : o->patterns) ++counts[pattern];
  std::string best;
  for (const auto& [pattern, count] : counts)
    if (best.empty() || count > counts[best] || (count == counts[best] && rank(pattern) < rank(best))) best = pattern;
  return best;
}

Finding make_finding(const std::vector<const Observation*>& members, const std::string& pattern) {
  Finding finding;
  finding.kind = members[0]->kind;
  finding.pattern = pattern;
  finding.count = static_cast<std::int64_t>(members.size());
  finding.rung = members[0]->rung;
  finding.evidence = members[0]->evidence;
  finding.repeat = members[0]->repeat;
  finding.common = members[0]->parameters;
  for (const Observation* o : members) {
    finding.rung = std::max(finding.rung, o->rung);
    ++finding.forms[o->form];
    for (auto it = finding.common.begin(); it != finding.common.end();) {
      const auto same = o->parameters.find(it->first);
      it = same == o->parameters.end() || same->second != it->second ? finding.common.erase(it) : std::next(it);
    }
  }
  if (members.size() < 3) finding.common.clear();  // two cases share much by chance
  return finding;
}

}  // namespace

std::string Finding::signature() const {
  std::string text = fmt::format("{} {} on {}, {}", kind.op, kind.stage, kind.backend, kind.dtype);
  if (!kind.pass.empty()) text += ", pass " + kind.pass;
  text += ": " + (pattern.empty() ? kind.outcome : pattern);
  if (!common.empty()) text += fmt::format(" ({})", to_string(common));
  return text;
}

std::vector<Finding> find(const std::vector<Observation>& observations) {
  std::map<AnomalyKind, std::vector<const Observation*>> groups;
  for (const Observation& o : observations) groups[o.kind].push_back(&o);
  std::vector<Finding> findings;
  for (auto& [kind, left] : groups) {
    while (!left.empty()) {
      const std::string pattern = best_pattern(left);
      std::vector<const Observation*> members, others;
      for (const Observation* o : left)
        (pattern.empty() || o->patterns.count(pattern) > 0 ? members : others).push_back(o);
      findings.push_back(make_finding(members, pattern));
      left = std::move(others);
    }
  }
  return findings;
}

}  // namespace opdiff
