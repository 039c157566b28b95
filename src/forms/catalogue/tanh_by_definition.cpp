#include "forms/activation.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::string x = draw_argument(form);
  SideBuilder tanh = form.side("Tanh");
  tanh.output(tanh.node("Tanh", {x}));

  SideBuilder definition = form.side("(exp(x) - exp(-x)) / (exp(x) + exp(-x))");
  const std::string up = definition.node("Exp", {x});
  const std::string down = definition.node("Exp", {definition.node("Neg", {x})});
  definition.output(definition.node("Div", {definition.node("Sub", {up, down}), definition.node("Add", {up, down})}));
}

}  // namespace

const Form& tanh_by_definition() {
  static const Form form = {
      .name = "tanh-by-definition",
      .title = "Tanh = (exp(x) - exp(-x)) / (exp(x) + exp(-x))",
      .mathematics =
          "The definition. Near 0 the difference cancels: the relative error grows as 1 / x, and the noise of this "
          "side says so.",
      .parameters = activation_parameters(),
      .conditions = {},
      .regions = activation_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
