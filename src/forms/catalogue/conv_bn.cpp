#include "forms/folding.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  const Normalisation norm(form, c.o);

  SideBuilder chain = form.side("Conv + BatchNormalization");
  chain.output(norm.node(chain, c.node(chain)));

  SideBuilder folded = form.side("Conv with folded weights");
  folded.output(norm.folded(folded, form, c));
}

}  // namespace

const Form& conv_bn() {
  static const Form form = {
      .name = "conv-bn",
      .kind = FormKind::fusion,
      .title = "Conv + BatchNormalization = Conv with folded weights",
      .mathematics =
          "With running statistics the normalisation is y = a z + b of each channel, a = scale / sqrt(var + epsilon) "
          "and b = bias - a mean: a goes into the kernel of its channel, b is the convolution's bias. The folded "
          "weights are rounded once more, and the oracle allows each that rounding.",
      .parameters = convolution_parameters({.c = 32, .o = 64, .extent = 56}),
      .conditions = {kWindowFits},
      .regions = {{"stride 1", {{"stride", 1}}}, {"stride 2", {{"stride", 2}}}, {"1x1", {{"kernel", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
