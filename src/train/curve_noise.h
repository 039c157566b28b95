// How far the curves of equally right trainings part: the same recipe on the same backends, from parameters that are
// each off by about one rounding. Training is chaotic, so after some hundred steps the size of the first error no
// longer shows, and what is left is the noise floor of the curves (docs/numerics.md, section 6).
#pragma once

#include <cstdint>
#include <span>

#include "graph/graph.h"
#include "train/curves.h"

namespace opdiff {

// Every floating-point value off by at most 2 units of roundoff, relatively, drawn by `seed`.
TensorMap off_by_a_rounding(const TensorMap& state, std::uint64_t seed);

// A training's curves against another's: test loss, test accuracy and mean loss of each epoch, in units of the root
// mean square distance of the noisy trainings there; at the steps after which all of them were tested.
struct CurveReading {
  double rms = 0, max = 0;  // of the curve with the largest root mean square; the largest of all
  std::string worst;        // that curve: "test accuracy"
  bool inside = true;       // of the limits of section 6, each curve
};

// Errors: fewer than two noisy trainings, or no step after which all were tested.
Expected<CurveReading> read_curves(const Curves& curves, const Curves& base, std::span<const Curves> noisy);

}  // namespace opdiff
