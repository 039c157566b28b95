// What forms of elementwise functions share: an argument x [rows, columns], scaled by a power of two.
#pragma once

#include "forms/builder.h"

namespace opdiff {

// rows columns magnitude.
std::vector<ParameterSpec> activation_parameters();
std::vector<FormRegion> activation_regions();

// x as an input, of the size 2^magnitude.
std::string draw_argument(FormBuilder& form, Values values = Values::any);

}  // namespace opdiff
