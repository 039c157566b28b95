#include "forms/batch.h"
#include "forms/folding.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const Images images(form);
  const std::string x = form.input("x", images.shape());
  const Normalisation norm(form, images.c, &form.tensor(x));

  SideBuilder chain = form.side("BatchNormalization + Relu");
  chain.output(chain.node("Relu", {norm.node(chain, x)}));

  SideBuilder shifted = form.side("scale and shift + Relu");
  shifted.output(shifted.node("Relu", {norm.scaled_and_shifted(shifted, x)}));
}

}  // namespace

const Form& bn_relu() {
  static const Form form = {
      .name = "bn-relu",
      .kind = FormKind::fusion,
      .title = "BatchNormalization + Relu in one kernel, or as scale, shift and Relu",
      .mathematics =
          "The normalisation as a x + b of each channel, and the maximum with 0 in the same pass over memory. The "
          "bias is drawn so that few results come near the kink.",
      .parameters = image_parameters(),
      .conditions = {},
      .regions = image_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
