#include "forms/transposed_convolution.h"

namespace opdiff::forms {
namespace {

constexpr std::int64_t kFarLeft = -(std::int64_t{1} << 31);  // "to the beginning", of a negative step

void build(FormBuilder& form) {
  const DrawnTransposedConvolution c(form);
  SideBuilder transposed = form.side("ConvTranspose");
  transposed.output(c.node(transposed));

  SideBuilder conv = form.side("Conv of an input spread by zeros");
  const std::int64_t before = c.dilation * (c.kernel - 1) - c.pad, after = before + c.output_padding;
  const std::string x =
      conv.pad(spread(conv, c.x, {c.n, c.group * c.c, c.h, c.w}, c.stride), {0, 0, before, before, 0, 0, after, after});
  // [group c, o, ...] -> [group o, c, ...], and turned by half a circle.
  std::string weights = conv.reshape(c.weights, {c.group, c.c, c.o, c.kernel, c.kernel});
  weights = conv.reshape(conv.transpose(weights, {0, 2, 1, 3, 4}), {c.group * c.o, c.c, c.kernel, c.kernel});
  weights = conv.slice(conv.slice(weights, 2, -1, kFarLeft, -1), 3, -1, kFarLeft, -1);
  auto attributes = c.attributes(c.group);
  attributes["strides"] = std::vector<std::int64_t>{1, 1};
  attributes["pads"] = std::vector<std::int64_t>{0, 0, 0, 0};
  conv.output(conv.node("Conv", {x, weights}, attributes));
}

}  // namespace

const Form& conv_transpose_as_conv() {
  static const Form form = {
      .name = "conv-transpose-as-conv",
      .title = "ConvTranspose = Conv of an input with zeros between its elements",
      .mathematics =
          "Each x is spread over the window where the convolution would have read it. Seen from an output: stride - 1 "
          "zeros between neighbours of x, dilation (kernel - 1) - pad around them, and a convolution of stride 1 with "
          "the kernel turned by half a circle (Dumoulin and Visin, 2016).",
      .parameters = transposed_convolution_parameters(),
      .conditions = transposed_convolution_conditions(),
      .regions = transposed_convolution_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
