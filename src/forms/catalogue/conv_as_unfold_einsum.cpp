#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder conv = form.side("Conv");
  conv.output(c.node(conv));

  SideBuilder einsum = form.side("pad + unfold + einsum");
  const std::string columns = unfold(einsum, c.x, c);
  const std::string kernels = einsum.reshape(c.weights, {c.o, c.c, c.kernel * c.kernel});
  const std::string y = einsum.node("Einsum", {kernels, columns}, {{"equation", std::string("ock,nckp->nop")}});
  einsum.output(einsum.reshape(y, c.y_shape()));
}

}  // namespace

const Form& conv_as_unfold_einsum() {
  static const Form form = {
      .name = "conv-as-unfold-einsum",
      .title = "Conv = pad + unfold + einsum",
      .mathematics =
          "y[n,o,p] = sum over c and k of w[o,c,k] x[n,c,window p, element k]: a window's elements are laid side by "
          "side, and the sum is one contraction. torch.nn.Unfold followed by a product is this.",
      .parameters = convolution_parameters({.c = 32, .o = 64, .extent = 28}),
      .conditions = {kWindowFits},
      .regions = {{"stride 1", {{"stride", 1}, {"dilation", 1}}},
                  {"stride 2", {{"stride", 2}}},
                  {"dilation 2", {{"dilation", 2}}},
                  {"no padding", {{"pad", 0}}},
                  {"1x1", {{"kernel", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
