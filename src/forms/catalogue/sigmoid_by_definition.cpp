#include "forms/activation.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::string x = draw_argument(form);
  SideBuilder sigmoid = form.side("Sigmoid");
  sigmoid.output(sigmoid.node("Sigmoid", {x}));

  SideBuilder definition = form.side("1 / (1 + exp(-x))");
  const std::string one = definition.number(1);
  const std::string e = definition.node("Exp", {definition.node("Neg", {x})});
  definition.output(definition.node("Div", {one, definition.node("Add", {one, e})}));

  SideBuilder other = form.side("exp(x) / (1 + exp(x))");
  const std::string grown = other.node("Exp", {x});
  other.output(other.node("Div", {grown, other.node("Add", {other.number(1), grown})}));
}

}  // namespace

const Form& sigmoid_by_definition() {
  static const Form form = {
      .name = "sigmoid-by-definition",
      .title = "Sigmoid = 1 / (1 + exp(-x))",
      .mathematics =
          "The definition; exp(-x) is finite for every ordinary x. Frameworks also compute exp(x) / (1 + exp(x)) "
          "where x is negative, which is the third side for all x.",
      .parameters = activation_parameters(),
      .conditions = {},
      .regions = activation_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
