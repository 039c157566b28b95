#include "forms/transposed_convolution.h"
#include "ops/meta_operator.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnTransposedConvolution c(form);
  SideBuilder transposed = form.side("ConvTranspose");
  transposed.output(c.node(transposed));

  SideBuilder gradient = form.side("gradient of Conv");
  // The convolution whose gradient it is: its input has the shape of the result, and its values do not matter.
  const std::string input = gradient.constant("input", Tensor::zeros(form.dtype(), c.y_shape()));
  gradient.output(gradient.node("Conv", {input, c.weights, c.x}, c.attributes(c.group), kGradientDomain));
}

}  // namespace

const Form& conv_transpose_as_gradient() {
  static const Form form = {
      .name = "conv-transpose-as-gradient",
      .title = "ConvTranspose = the gradient of Conv with respect to its input",
      .mathematics =
          "With the same weights, strides, pads and dilations, Conv maps the shape of the result to that of x, and "
          "the transpose of its matrix times x as the cotangent is ConvTranspose. output_padding says which of the "
          "inputs that a stride leaves open is meant. Frameworks share the kernel, so both sides may err together. In "
          "gradient mode the second side has no part: there is no gradient of a gradient here.",
      .parameters = transposed_convolution_parameters(),
      .conditions = transposed_convolution_conditions(),
      .regions = transposed_convolution_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
