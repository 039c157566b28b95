#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder conv = form.side("Conv");
  conv.output(c.node(conv));

  SideBuilder product = form.side("im2col + MatMul");
  const std::int64_t terms = c.c * c.kernel * c.kernel;
  const std::string columns = product.reshape(unfold(product, c.x, c), {c.n, terms, c.out_h() * c.out_w()});
  const std::string y = product.node("MatMul", {product.reshape(c.weights, {c.o, terms}), columns});
  product.output(product.reshape(y, c.y_shape()));
}

}  // namespace

const Form& conv_as_im2col_product() {
  static const Form form = {
      .name = "conv-as-im2col-product",
      .title = "Conv = im2col + MatMul",
      .mathematics =
          "The elements of all windows are the columns of a matrix [c kernel^2, windows], the kernels the rows of "
          "another: their product is the convolution. Caffe computed it so, and most CPU libraries still do.",
      .parameters = convolution_parameters({.c = 32, .o = 64, .extent = 28}),
      .conditions = {kWindowFits},
      .regions = {{"stride 1", {{"stride", 1}, {"dilation", 1}}},
                  {"stride 2", {{"stride", 2}}},
                  {"dilation 2", {{"dilation", 2}}},
                  {"no padding", {{"pad", 0}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
