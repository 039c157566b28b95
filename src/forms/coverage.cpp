#include "forms/coverage.h"

#include <algorithm>
#include <limits>

namespace opdiff {

bool lies_in(const Parameters& parameters, const FormRegion& region) {
  return std::all_of(region.fixed.begin(), region.fixed.end(), [&](const auto& fixed) {
    const auto found = parameters.find(fixed.first);
    return found != parameters.end() && found->second == fixed.second;
  });
}

void Coverage::add(const Form& form, const Parameters& parameters, const std::string& backend, const std::string& dtype,
                   const std::string& direction, bool ran) {
  for (const FormRegion& region : form.regions) {
    if (!lies_in(parameters, region)) continue;
    Count& count = cells_[{std::string(form.name), std::string(region.name), backend, dtype, direction}];
    ++(ran ? count.ran : count.unsupported);
  }
}

std::size_t Coverage::least(const Form& form, const std::vector<std::string>& backends, const std::string& dtype,
                            const std::string& direction, const std::vector<std::int64_t>& planned) const {
  std::size_t best = 0;
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (std::size_t r = 0; r < form.regions.size(); ++r) {
    for (const std::string& backend : backends) {
      const auto cell =
          cells_.find({std::string(form.name), std::string(form.regions[r].name), backend, dtype, direction});
      const std::int64_t served = planned[r] + (cell == cells_.end() ? 0 : cell->second.served());
      if (served >= fewest) continue;
      fewest = served;
      best = r;
    }
  }
  return best;
}

}  // namespace opdiff
