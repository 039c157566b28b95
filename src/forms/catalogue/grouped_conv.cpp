#include "forms/grouped_convolution.h"

namespace opdiff::forms {
namespace {

std::vector<ParameterSpec> parameters() {
  std::vector<ParameterSpec> result = convolution_parameters({.c = 16, .o = 16, .extent = 56});
  result.push_back({"group", "groups; c and o are channels of one group", 1, 4, 4});
  return result;
}

}  // namespace

const Form& grouped_conv() {
  static const Form form = {
      .name = "grouped-conv",
      .title = "Conv with groups = slices + convolutions + Concat",
      .mathematics =
          "Output channels of a group read its input channels alone: each group is a convolution by itself, of its "
          "slice of x and of the kernels. As a contraction the group is an index that all three tensors have.",
      .parameters = parameters(),
      .conditions = {kWindowFits},
      .regions = {{"two groups", {{"group", 2}, {"dilation", 1}}},
                  {"one group", {{"group", 1}}},
                  {"stride 2", {{"stride", 2}, {"group", 3}}},
                  {"dilation 2", {{"dilation", 2}, {"group", 2}}},
                  {"1x1", {{"kernel", 1}, {"group", 4}}}},
      .build = &build_grouped_convolution,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
