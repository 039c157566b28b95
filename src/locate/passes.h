// Which optimisation passes make a failure: they are switched off one by one, or by halves, until it goes. A state
// machine over a predicate; who opens a backend with passes off is the caller.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace opdiff {

// Does the failure go when these passes are switched off together?
using RepairPredicate = std::function<bool(const std::vector<std::string>& disabled)>;

struct PassBlame {
  // Sorted. Each alone repairs: the failure needs them all ("A+B").
  std::vector<std::string> needed;
  // Sorted; only when none alone repairs. They must be off together: each can make the failure by itself ("A|B").
  std::vector<std::string> alternatives;
  int probes = 0;

  // "A+B", "A|B", or "" when passes have nothing to do with it.
  std::string text() const;
};

// Assumes that switching off more passes never brings a failure back; a set that repairs is then halved, and a set that
// does not is dropped whole: about 2 log2(n) probes a guilty pass instead of n.
PassBlame blame_passes(std::vector<std::string> passes, const RepairPredicate& repairs);

}  // namespace opdiff
