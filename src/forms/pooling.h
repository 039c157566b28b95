// What forms of pools share.
#pragma once

#include "forms/convolution.h"

namespace opdiff {

// With the parameter include_pad as count_include_pad.
std::string average_pool(SideBuilder& side, const std::string& x, const WindowGeometry& g);
std::vector<ParameterSpec> average_pool_parameters();
// Padding counts, or there is none; no window lies in the padding alone.
std::vector<Condition> average_pool_conditions();
std::vector<FormRegion> average_pool_regions();

inline bool pads_are_smaller_than_kernel(const Parameters& p) { return p.at("pad") < p.at("kernel"); }
inline constexpr Condition kPadsBelowKernel = {"a pad smaller than the kernel", &pads_are_smaller_than_kernel};

}  // namespace opdiff
