// How often each cell (form, backend, dtype, direction, region of the parameters) was met: the least covered one is
// served next.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "forms/form.h"

namespace opdiff {

class Coverage {
 public:
  struct Cell {
    std::string form, region, backend, dtype, direction;  // direction: "forward", "gradient"
    auto operator<=>(const Cell&) const = default;
  };
  struct Count {
    std::int64_t ran = 0, unsupported = 0;
    std::int64_t served() const { return ran + unsupported; }
  };

  // A case counts in every region that its parameters lie in.
  void add(const Form& form, const Parameters& parameters, const std::string& backend, const std::string& dtype,
           const std::string& direction, bool ran);
  // The region that was served least on the backend where it was served least; of equals the first. `planned` cases of
  // each region count as served.
  std::size_t least(const Form& form, const std::vector<std::string>& backends, const std::string& dtype,
                    const std::string& direction, const std::vector<std::int64_t>& planned) const;

  const std::map<Cell, Count>& cells() const { return cells_; }

 private:
  std::map<Cell, Count> cells_;
};

bool lies_in(const Parameters& parameters, const FormRegion& region);

}  // namespace opdiff
