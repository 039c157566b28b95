#include "forms/activation.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::string x = draw_argument(form, Values::nonzero);
  SideBuilder relu = form.side("Relu");
  relu.output(relu.node("Relu", {x}));

  SideBuilder maximum = form.side("max(x, 0)");
  maximum.output(maximum.node("Max", {x, maximum.number(0)}));

  SideBuilder absolute = form.side("(x + |x|) / 2");
  const std::string twice = absolute.node("Add", {x, absolute.node("Max", {x, absolute.node("Neg", {x})})});
  absolute.output(absolute.node("Mul", {twice, absolute.number(0.5)}));
}

}  // namespace

const Form& relu_by_definition() {
  static const Form form = {
      .name = "relu-by-definition",
      .title = "Relu = max(x, 0) = (x + |x|) / 2",
      .mathematics = "x + |x| is 2 x or 0. No x is 0 here: there the gradient of a maximum and of |x| is a convention.",
      .parameters = activation_parameters(),
      .conditions = {},
      .regions = activation_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
