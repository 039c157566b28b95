#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder conv = form.side("Conv");
  conv.output(c.node(conv));

  SideBuilder product = form.side("MatMul");
  const bool reads_all = c.stride == 1 && c.pad == 0;
  const std::string x = reads_all ? c.x : window_elements(product, c.x, c)[0];
  const std::string columns = product.reshape(x, {c.n, c.c, c.out_h() * c.out_w()});
  const std::string y = product.node("MatMul", {product.reshape(c.weights, {c.o, c.c}), columns});
  product.output(product.reshape(y, c.y_shape()));
}

}  // namespace

const Form& conv_1x1_as_product() {
  static const Form form = {
      .name = "conv-1x1-as-product",
      .title = "Conv of a 1x1 kernel = MatMul",
      .mathematics =
          "A window is one element: y[n,o,p] = sum over c of w[o,c] x[n,c,p], a product for each n. A stride or "
          "padding choose and add positions beforehand.",
      .parameters = convolution_parameters({.c = 128, .o = 128, .extent = 28, .kernel = 1}),
      .conditions = {{"a kernel of 1x1", [](const Parameters& p) { return p.at("kernel") == 1; }}},
      .regions = {{"every position", {{"kernel", 1}, {"stride", 1}, {"pad", 0}}},
                  {"stride 2", {{"kernel", 1}, {"stride", 2}}},
                  {"padding", {{"kernel", 1}, {"pad", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
