#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const WindowGeometry g(form);
  const std::int64_t o = form["o"];
  const std::string x = form.input("x", {g.n, g.c, g.h, g.w});
  const std::string w = form.weight("w", {o, g.c, g.kernel, g.kernel}, g.c * g.kernel * g.kernel);

  SideBuilder conv = form.side("Conv");
  conv.output(conv.node("Conv", {x, w}, g.attributes()));

  SideBuilder einsum = form.side("pad + unfold + einsum");
  const std::string columns = unfold(einsum, x, g);
  const std::string kernels = einsum.reshape(w, {o, g.c, g.kernel * g.kernel});
  const std::string y = einsum.node("Einsum", {kernels, columns}, {{"equation", std::string("ock,nckp->nop")}});
  einsum.output(einsum.reshape(y, {g.n, o, g.out_h(), g.out_w()}));
}

}  // namespace

const Form& conv_as_unfold_einsum() {
  static const Form form = {
      .name = "conv-as-unfold-einsum",
      .title = "Conv = pad + unfold + einsum",
      .mathematics =
          "y[n,o,p] = sum over c and k of w[o,c,k] x[n,c,window p, element k]: a window's elements are laid side by "
          "side, and the sum is one contraction. torch.nn.Unfold followed by a product is this.",
      .parameters = {{"n", "batch", 1, 3, 1},
                     {"c", "input channels", 1, 5, 16},
                     {"o", "output channels", 1, 5, 32},
                     {"h", "height", 3, 9, 28},
                     {"w", "width", 3, 9, 28},
                     {"kernel", "kernel extent", 1, 3, 3},
                     {"stride", "stride", 1, 3, 1},
                     {"dilation", "dilation", 1, 2, 1},
                     {"pad", "zeros on each side", 0, 2, 1}},
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
