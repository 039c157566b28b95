// Lists of integers that are an attribute up to some opset and an input after it (axes, pads, starts), and lists of
// axes.
#pragma once

#include <algorithm>

#include "ops/call.h"

namespace opdiff {

struct IntegerList {
  bool given = false;
  bool known = true;  // false: an input whose value is not there yet
  std::vector<std::int64_t> values;
};

// The list `name`: an attribute before opset `since`, input `input` from then on.
Expected<IntegerList> integer_list(const Call& call, const std::string& name, int input, int since);

// Every axis in [-rank, rank) and none twice, made non-negative.
Expected<std::vector<int>> normalise_axes(const std::vector<std::int64_t>& axes, std::int64_t rank);

inline bool contains(const std::vector<int>& axes, std::int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

}  // namespace opdiff
