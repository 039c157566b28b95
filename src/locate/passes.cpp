#include "locate/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace opdiff {
namespace {

using Names = std::vector<std::string>;

struct Search {
  const RepairPredicate& repairs;
  int probes = 0;

  bool ask(const Names& disabled) {
    ++probes;
    return repairs(disabled);
  }

  // `names` repairs. Appends every single pass in it that repairs alone.
  void singles(const Names& names, Names* found) {
    if (names.size() == 1) {
      found->push_back(names.front());
      return;
    }
    const auto middle = names.begin() + static_cast<std::ptrdiff_t>(names.size() / 2);
    for (const Names& half : {Names(names.begin(), middle), Names(middle, names.end())}) {
      if (ask(half)) singles(half, found);
    }
  }

  // `names` repairs, no single pass does: drops whatever is not needed for the repair.
  Names smallest_joint(Names names) {
    for (std::size_t chunk = names.size() / 2; chunk >= 1; chunk /= 2) {
      for (std::size_t begin = 0; begin < names.size();) {
        Names rest(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(begin));
        std::copy(names.begin() + static_cast<std::ptrdiff_t>(std::min(begin + chunk, names.size())), names.end(),
                  std::back_inserter(rest));
        if (!rest.empty() && ask(rest)) {
          names = std::move(rest);
        } else {
          begin += chunk;
        }
      }
    }
    return names;
  }
};

}  // namespace

std::string PassBlame::text() const {
  return !needed.empty() ? fmt::format("{}", fmt::join(needed, "+")) : fmt::format("{}", fmt::join(alternatives, "|"));
}

PassBlame blame_passes(std::vector<std::string> passes, const RepairPredicate& repairs) {
  PassBlame blame;
  std::sort(passes.begin(), passes.end());
  if (passes.empty()) return blame;
  Search search{repairs};
  if (search.ask(passes)) {
    search.singles(passes, &blame.needed);
    if (blame.needed.empty()) blame.alternatives = search.smallest_joint(passes);
  }
  blame.probes = search.probes;
  return blame;
}

}  // namespace opdiff
