#include "forms/linear.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnLinear l(form);
  const std::string bias = form.parameter("bias", {l.n});
  SideBuilder gemm = form.side("Gemm");
  gemm.output(l.gemm(gemm, bias));

  SideBuilder product = form.side("MatMul + Add");
  product.output(product.node("Add", {l.product(product), bias}));
}

}  // namespace

const Form& linear_as_product_add() {
  static const Form form = {
      .name = "linear-as-product-add",
      .title = "Gemm = MatMul + Add",
      .mathematics = "A fully connected layer: y = x W + b. The bias may be where the sum starts, or be added to it.",
      .parameters = linear_parameters(),
      .conditions = {},
      .regions = linear_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
