#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder dilated = form.side("Conv with dilations");
  dilated.output(c.node(dilated));

  SideBuilder conv = form.side("Conv of a kernel spread by zeros");
  auto attributes = c.attributes();
  const std::int64_t reach = c.dilation * (c.kernel - 1) + 1;
  attributes["dilations"] = std::vector<std::int64_t>{1, 1};
  attributes["kernel_shape"] = std::vector<std::int64_t>{reach, reach};
  const std::string weights = spread(conv, c.weights, {c.o, c.c, c.kernel, c.kernel}, c.dilation);
  conv.output(conv.node("Conv", {c.x, weights}, attributes));
}

}  // namespace

const Form& dilated_conv_as_conv() {
  static const Form form = {
      .name = "dilated-conv-as-conv",
      .title = "Conv with dilations = Conv of a kernel with zeros between its elements",
      .mathematics =
          "A dilation d reads every d-th element: the kernel of extent d (kernel - 1) + 1 that has zeros in between "
          "multiplies those it passes over by zero.",
      .parameters = convolution_parameters({.c = 64, .o = 64, .extent = 28}),
      .conditions = {kWindowFits},
      .regions = {{"dilation 2", {{"dilation", 2}, {"kernel", 3}}},
                  {"dilation 3", {{"dilation", 3}, {"kernel", 2}}},
                  {"stride 2", {{"dilation", 2}, {"stride", 2}}},
                  {"nothing to spread", {{"dilation", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
