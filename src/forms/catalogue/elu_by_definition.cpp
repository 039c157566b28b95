#include "forms/activation.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::string x = draw_argument(form, Values::nonzero);
  const double alpha = static_cast<double>(form["alpha"]) / 4;
  SideBuilder elu = form.side("Elu");
  elu.output(elu.node("Elu", {x}, {{"alpha", static_cast<float>(alpha)}}));

  SideBuilder definition = form.side("max(x, 0) + alpha (exp(min(x, 0)) - 1)");
  const std::string zero = definition.number(0);
  const std::string grown = definition.node("Exp", {definition.node("Min", {x, zero})});
  const std::string below = definition.node("Sub", {grown, definition.number(1)});
  const std::string scaled = definition.node("Mul", {definition.number(alpha), below});
  definition.output(definition.node("Add", {definition.node("Max", {x, zero}), scaled}));
}

std::vector<ParameterSpec> parameters() {
  std::vector<ParameterSpec> result = activation_parameters();
  result.push_back({"alpha", "alpha in quarters", 1, 8, 4});
  return result;
}

std::vector<FormRegion> regions() {
  std::vector<FormRegion> result = activation_regions();
  result.push_back({"alpha 1", {{"alpha", 4}}});
  return result;
}

}  // namespace

const Form& elu_by_definition() {
  static const Form form = {
      .name = "elu-by-definition",
      .title = "Elu = max(x, 0) + alpha (exp(min(x, 0)) - 1)",
      .mathematics =
          "x where x is positive, alpha (exp(x) - 1) elsewhere, without a branch. Near 0 the difference cancels; "
          "libraries that have expm1 do not lose those digits. No x is 0 here: there the gradient of a maximum is a "
          "convention.",
      .parameters = parameters(),
      .conditions = {},
      .regions = regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
