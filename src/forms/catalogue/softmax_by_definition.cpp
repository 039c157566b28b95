#include "forms/softmax.h"

namespace opdiff::forms {
namespace {

std::string normalised(SideBuilder& side, const DrawnClasses& c, const std::string& x) {
  const std::string e = side.node("Exp", {x});
  return side.node("Div", {e, side.reduce("ReduceSum", e, {c.axis})});
}

void build(FormBuilder& form) {
  const DrawnClasses c(form);
  SideBuilder softmax = form.side("Softmax");
  softmax.output(softmax.node("Softmax", {c.x}, c.attributes()));

  SideBuilder shifted = form.side("exp(x - max x) / sum of them");
  shifted.output(normalised(shifted, c, c.shifted(shifted)));

  SideBuilder definition = form.side("exp(x) / sum of exp(x)");
  definition.output(normalised(definition, c, c.x));
}

}  // namespace

const Form& softmax_by_definition() {
  static const Form form = {
      .name = "softmax-by-definition",
      .title = "Softmax = exp(x) / sum of exp(x)",
      .mathematics =
          "A shift of all x of a row changes nothing, so that the largest is subtracted first and no exp overflows; "
          "for x of ordinary size the definition does without. In gradient mode the maximum's share is exactly zero, "
          "whichever of equal maxima takes it.",
      .parameters = classes_parameters(),
      .conditions = classes_conditions(),
      .regions = classes_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
