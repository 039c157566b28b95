// A convolution in groups, and what each group is by itself.
#pragma once

#include "forms/convolution.h"

namespace opdiff {

// Three sides: one Conv with `group`; each group's part of x and of the kernel cut out, convolved, and put together
// again; pad + unfold and one contraction over each group. Parameters of DrawnConvolution.
void build_grouped_convolution(FormBuilder& form);

}  // namespace opdiff
