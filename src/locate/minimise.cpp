#include "locate/minimise.h"

#include <algorithm>
#include <map>
#include <set>

namespace opdiff {
namespace {

// Thrown nowhere outside this file: the search ends early when the predicate changes its mind or the budget is spent.
struct Stop {
  MinimiseStatus status;
};

class Minimiser {
 public:
  Minimiser(const Graph& graph, const SegmentPredicate& fails, int probe_limit)
      : graph_(graph), uses_(graph), fails_(fails), probe_limit_(probe_limit) {}

  MinimiseResult run(const NodeSet& start) {
    MinimiseResult result;
    current_ = convex_closure(graph_, start);
    bool shown = false;
    try {
      shown = probe(current_);
      if (shown) {
        shrink();
        result.status = MinimiseStatus::found;
      }
    } catch (const Stop& stop) {
      result.status = stop.status;
    }
    result.segment = shown ? current_ : NodeSet{};
    result.probes = probes_;
    return result;
  }

 private:
  bool probe(const NodeSet& nodes) {
    if (nodes.empty()) return false;
    const auto known = answers_.find(nodes);
    if (known != answers_.end()) return known->second;
    if (probes_ + 2 > probe_limit_) throw Stop{MinimiseStatus::gave_up};
    probes_ += 2;
    const bool first = fails_(nodes);
    const bool second = fails_(nodes);
    if (first != second) throw Stop{MinimiseStatus::not_deterministic};
    answers_[nodes] = first;
    return first;
  }

  bool take_if_failing(const NodeSet& candidate) {
    if (candidate.size() >= current_.size() || !probe(candidate)) return false;
    current_ = candidate;
    return true;
  }

  void shrink() {
    cut_tail();
    cut_head();
    for (const NodeSet& part : connected_parts(uses_, current_)) {
      if (take_if_failing(part)) break;
    }
    // Halves of what is left, closed again, reach a small core inside a wide graph quickly; single ends make it
    // minimal.
    for (std::size_t chunk = current_.size() / 2; chunk >= 1; chunk /= 2) remove_chunks(chunk);
    while (remove_one_end()) {
    }
  }

  // Every prefix of a topological order of a convex set is convex. The invariant (the longer fails, the shorter does
  // not) needs no monotonicity.
  void cut_tail() {
    std::size_t passing = 0, failing = current_.size();
    while (failing - passing > 1) {
      const std::size_t middle = (passing + failing) / 2;
      (probe({current_.begin(), current_.begin() + static_cast<std::ptrdiff_t>(middle)}) ? failing : passing) = middle;
    }
    current_.resize(failing);
  }

  void cut_head() {
    std::size_t failing = 0, passing = current_.size();
    while (passing - failing > 1) {
      const std::size_t middle = (passing + failing) / 2;
      (probe({current_.begin() + static_cast<std::ptrdiff_t>(middle), current_.end()}) ? failing : passing) = middle;
    }
    current_.erase(current_.begin(), current_.begin() + static_cast<std::ptrdiff_t>(failing));
  }

  void remove_chunks(std::size_t chunk) {
    bool removed = true;
    while (removed) {
      removed = false;
      for (std::size_t begin = 0; begin < current_.size(); begin += chunk) {
        NodeSet rest(current_.begin(), current_.begin() + static_cast<std::ptrdiff_t>(begin));
        const std::size_t end = std::min(begin + chunk, current_.size());
        rest.insert(rest.end(), current_.begin() + static_cast<std::ptrdiff_t>(end), current_.end());
        if (take_if_failing(convex_closure(graph_, rest))) {
          removed = true;
          break;
        }
      }
      if (chunk >= current_.size()) break;
    }
  }

  bool remove_one_end() {
    const std::set<int> inside(current_.begin(), current_.end());
    for (const int node : current_) {
      const auto is_inside = [&](int other) { return inside.count(other) > 0; };
      const auto& producers = uses_.predecessors(node);
      const auto& consumers = uses_.successors(node);
      const bool source = std::none_of(producers.begin(), producers.end(), is_inside);
      const bool sink = std::none_of(consumers.begin(), consumers.end(), is_inside);
      if (!source && !sink) continue;
      NodeSet rest;
      std::copy_if(current_.begin(), current_.end(), std::back_inserter(rest),
                   [node](int other) { return other != node; });
      if (take_if_failing(rest)) return true;
    }
    return false;
  }

  const Graph& graph_;
  const Uses uses_;
  const SegmentPredicate& fails_;
  const int probe_limit_;
  NodeSet current_;
  std::map<NodeSet, bool> answers_;
  int probes_ = 0;
};

}  // namespace

MinimiseResult minimise_segment(const Graph& graph, const NodeSet& start, const SegmentPredicate& fails,
                                int probe_limit) {
  return Minimiser(graph, fails, probe_limit).run(start);
}

}  // namespace opdiff
