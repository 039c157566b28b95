#include "forms/folding.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  const Tensor z = c.value(form);
  const Normalisation norm(form, c.o, &z);

  SideBuilder chain = form.side("Conv + BatchNormalization + Relu");
  chain.output(chain.node("Relu", {norm.node(chain, c.node(chain))}));

  SideBuilder folded = form.side("Conv with folded weights + Relu");
  folded.output(folded.node("Relu", {norm.folded(folded, form, c)}));
}

}  // namespace

const Form& conv_bn_relu() {
  static const Form form = {
      .name = "conv-bn-relu",
      .kind = FormKind::fusion,
      .title = "Conv + BatchNormalization + Relu = Conv with folded weights + Relu",
      .mathematics =
          "conv-bn with a Relu behind it, the block that most convolutional networks repeat; compilers make one "
          "kernel of it. The bias is drawn so that few results come near the kink.",
      .parameters = convolution_parameters({.c = 32, .o = 64, .extent = 56}),
      .conditions = {kWindowFits},
      .regions = {{"stride 1", {{"stride", 1}}}, {"stride 2", {{"stride", 2}}}, {"1x1", {{"kernel", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
