#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder chain = form.side("Pad + Conv");
  chain.output(c.node_on_padded(chain, padded(chain, c.x, c)));

  SideBuilder fused = form.side("Conv with pads");
  fused.output(c.node(fused));
}

}  // namespace

const Form& pad_conv() {
  static const Form form = {
      .name = "pad-conv",
      .kind = FormKind::fusion,
      .title = "Pad + Conv = Conv with pads",
      .mathematics =
          "Zeros around x, or windows that pass over the border: the sums have the same terms that are not 0.",
      .parameters = convolution_parameters({.c = 32, .o = 64, .extent = 56}),
      .conditions = {{"padding", [](const Parameters& p) { return p.at("pad") > 0; }}, kWindowFits},
      .regions = {{"pad 1", {{"pad", 1}, {"stride", 1}}}, {"pad 2", {{"pad", 2}}}, {"stride 2", {{"stride", 2}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
