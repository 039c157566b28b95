#include "forms/grouped_convolution.h"

namespace opdiff::forms {
namespace {

bool is_depthwise(const Parameters& p) { return p.at("c") == 1; }

std::vector<ParameterSpec> parameters() {
  std::vector<ParameterSpec> result = convolution_parameters({.c = 1, .o = 1, .extent = 112});
  for (ParameterSpec& p : result) {
    if (p.name == "c") p.high = 1;
    if (p.name == "o") p.high = 3;
  }
  result.push_back({"group", "channels, each a group; o is their multiplier", 2, 6, 32});
  return result;
}

}  // namespace

const Form& depthwise_conv() {
  static const Form form = {
      .name = "depthwise-conv",
      .title = "depthwise Conv = a convolution of each channel + Concat",
      .mathematics =
          "A group of one channel: every output channel reads one input channel, and the multiplier says how many do. "
          "Libraries have kernels of their own for it, since there is nothing to sum over channels.",
      .parameters = parameters(),
      .conditions = {{"one input channel in each group", &is_depthwise}, kWindowFits},
      .regions = {{"multiplier 1", {{"o", 1}, {"stride", 1}, {"dilation", 1}}},
                  {"multiplier 2", {{"o", 2}}},
                  {"stride 2", {{"stride", 2}}},
                  {"dilation 2", {{"dilation", 2}}}},
      .build = &build_grouped_convolution,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
