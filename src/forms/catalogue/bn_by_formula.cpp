#include "forms/batch.h"
#include "forms/folding.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const Images images(form);
  const std::string x = form.input("x", images.shape());
  const Normalisation norm(form, images.c);

  SideBuilder node = form.side("BatchNormalization");
  node.output(norm.node(node, x));

  SideBuilder formula = form.side("(x - mean) / sqrt(var + epsilon) * scale + bias");
  formula.output(norm.formula(formula, x));

  SideBuilder shifted = form.side("scale and shift");
  shifted.output(norm.scaled_and_shifted(shifted, x));
}

}  // namespace

const Form& bn_by_formula() {
  static const Form form = {
      .name = "bn-by-formula",
      .title = "BatchNormalization in inference = its formula = a scale and a shift",
      .mathematics =
          "y = (x - mean) / sqrt(var + epsilon) * scale + bias by channel, with running statistics that are "
          "constants: so y = a x + b with a = scale / sqrt(var + epsilon), b = bias - a mean. The second cancels "
          "where x is near the mean.",
      .parameters = image_parameters(),
      .conditions = {},
      .regions = image_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
