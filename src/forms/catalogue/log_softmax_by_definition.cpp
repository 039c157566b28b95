#include "forms/softmax.h"

namespace opdiff::forms {
namespace {

// x - log(sum of exp(x)).
std::string normalised(SideBuilder& side, const DrawnClasses& c, const std::string& x) {
  const std::string sum = side.reduce("ReduceSum", side.node("Exp", {x}), {c.axis});
  return side.node("Sub", {x, side.node("Log", {sum})});
}

void build(FormBuilder& form) {
  const DrawnClasses c(form);
  SideBuilder log_softmax = form.side("LogSoftmax");
  log_softmax.output(log_softmax.node("LogSoftmax", {c.x}, c.attributes()));

  SideBuilder shifted = form.side("log-sum-exp of x - max x");
  shifted.output(normalised(shifted, c, c.shifted(shifted)));

  SideBuilder definition = form.side("x - log(sum of exp(x))");
  definition.output(normalised(definition, c, c.x));

  SideBuilder composed = form.side("Log(Softmax)");
  composed.output(composed.node("Log", {composed.node("Softmax", {c.x}, c.attributes())}));
}

}  // namespace

const Form& log_softmax_by_definition() {
  static const Form form = {
      .name = "log-softmax-by-definition",
      .title = "LogSoftmax = x - log(sum of exp(x)) = Log(Softmax)",
      .mathematics =
          "log(exp(x) / s) = x - log s. As the logarithm of Softmax it loses digits where a class is nearly certain, "
          "and is infinite where Softmax underflows, which x of ordinary size does not.",
      .parameters = classes_parameters(),
      .conditions = classes_conditions(),
      .regions = classes_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
