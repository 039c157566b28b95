#include <cmath>

#include "forms/convolution.h"
#include "forms/folding.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const WindowGeometry g(form);
  const std::int64_t o = form["o"];
  const std::string x = form.input("x", {g.n, g.c, g.h, g.w});
  const std::string w = form.weight("w", {o, g.c, g.kernel, g.kernel}, g.c * g.kernel * g.kernel);
  const Normalisation norm(form, o);

  SideBuilder chain = form.side("Conv + BatchNormalization");
  chain.output(norm.node(chain, chain.node("Conv", {x, w}, g.attributes())));

  SideBuilder folded = form.side("Conv with folded weights");
  const FoldedConvolution f = norm.fold(form, w);
  folded.output(folded.node(
      "Conv", {x, folded.folded("w_folded", form.tensor(w).shape(), f.weights), folded.folded("b_folded", {o}, f.bias)},
      g.attributes()));
}

}  // namespace

const Form& conv_bn() {
  static const Form form = {
      .name = "conv-bn",
      .kind = FormKind::fusion,
      .title = "Conv + BatchNormalization = Conv with folded weights",
      .mathematics =
          "With running statistics the normalisation is y = a z + b of each channel, a = scale / sqrt(var + epsilon) "
          "and "
          "b = bias - a mean: a goes into the kernel of its channel, b is the convolution's bias. The folded weights "
          "are "
          "rounded once more, and the oracle allows each that rounding.",
      .parameters = {{"n", "batch", 1, 3, 1},
                     {"c", "input channels", 1, 5, 16},
                     {"o", "output channels", 1, 5, 32},
                     {"h", "height", 3, 9, 56},
                     {"w", "width", 3, 9, 56},
                     {"kernel", "kernel extent", 1, 3, 3},
                     {"stride", "stride", 1, 2, 1},
                     {"pad", "zeros on each side", 0, 1, 1}},
      .conditions = {kWindowFits},
      .regions = {{"stride 1", {{"stride", 1}}}, {"stride 2", {{"stride", 2}}}, {"1x1", {{"kernel", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
