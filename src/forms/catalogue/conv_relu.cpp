#include "forms/convolution.h"
#include "forms/kink.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  const Tensor z = c.value(form);
  const std::string bias = form.parameter(
      "bias", Tensor::from_doubles(form.dtype(), {c.o}, bias_beside_kink(z.to_doubles(), z.shape(), form.rng())));
  SideBuilder chain = form.side("Conv + Relu");
  chain.output(chain.node("Relu", {c.node(chain, bias)}));
}

}  // namespace

const Form& conv_relu() {
  static const Form form = {
      .name = "conv-relu",
      .kind = FormKind::fusion,
      .title = "Conv + Relu in one kernel",
      .mathematics =
          "The maximum with 0 while the sum is still in a register. ONNX has no operator for it, so only a backend "
          "can fuse it. The bias is drawn so that few results come near the kink.",
      .parameters = convolution_parameters({.c = 32, .o = 64, .extent = 56}),
      .conditions = {kWindowFits},
      .regions = {{"stride 1", {{"stride", 1}}}, {"stride 2", {{"stride", 2}}}, {"1x1", {{"kernel", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
