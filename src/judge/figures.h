// The classic figures that people compare tensors by, beside every verdict; and the comparison with a noise floor.
#pragma once

#include <span>

#include "judge/verdict.h"

namespace opdiff {

// Over the elements where both are finite. `format`: for ulps.
ClassicFigures classic_figures(std::span<const double> got, std::span<const double> centre, const Format& format);

}  // namespace opdiff
