// Delta debugging over the nodes of a graph: the smallest convex segment that still shows a failure. A state machine
// over a predicate: no I/O, no judging. What is asked of a segment is in plan/probe.h; who asks is locate/localise.h.
#pragma once

#include <functional>

#include "plan/segment.h"

namespace opdiff {

// Does the segment show the failure? Must answer the same way each time; a change of mind ends the search.
using SegmentPredicate = std::function<bool(const NodeSet&)>;

enum class MinimiseStatus {
  found,
  not_shown,          // the start set does not show the failure, in either of two probes
  not_deterministic,  // two probes of one segment disagreed
  gave_up,            // more probes than allowed; `segment` is the smallest one seen to fail
};

struct MinimiseResult {
  MinimiseStatus status = MinimiseStatus::not_shown;
  NodeSet segment;  // failing and convex; of status found: no convex proper subset one node smaller fails
  int probes = 0;   // runs of the predicate, repeats included
};

// Shrinks `start` (made convex first). Each probe is run twice. Removing a source or a sink of a convex set leaves it
// convex, and every maximal convex proper subset arises so (the convex sets of an order are a convex geometry); so when
// no single source or sink can go, no convex subset that is one node smaller fails.
MinimiseResult minimise_segment(const Graph& graph, const NodeSet& start, const SegmentPredicate& fails,
                                int probe_limit = 4000);

}  // namespace opdiff
