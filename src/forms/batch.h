// What forms of batch normalisation share: x [n, c, h, w].
#pragma once

#include "forms/builder.h"

namespace opdiff {

struct Images {
  std::int64_t n, c, h, w;
  explicit Images(const FormBuilder& form) : n(form["n"]), c(form["c"]), h(form["h"]), w(form["w"]) {}
  Shape shape() const { return {n, c, h, w}; }
};

inline std::vector<ParameterSpec> image_parameters() {
  return {{"n", "batch", 1, 4, 2}, {"c", "channels", 1, 5, 64}, {"h", "height", 1, 6, 56}, {"w", "width", 1, 6, 56}};
}
inline std::vector<FormRegion> image_regions() {
  return {{"batch 2", {{"n", 2}, {"h", 4}}}, {"one channel", {{"c", 1}}}, {"one image", {{"n", 1}, {"w", 5}}}};
}

}  // namespace opdiff
