#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  const bool before = form["before"] == 1;
  const std::int64_t channels = before ? c.c : c.o;
  const std::string factor = form.parameter("factor", {1, channels, 1, 1}, Values::positive);

  SideBuilder chain = form.side("Conv and Mul");
  if (before)
    chain.output(chain.node("Conv", {chain.node("Mul", {c.x, factor}), c.weights}, c.attributes()));
  else
    chain.output(chain.node("Mul", {c.node(chain), factor}));

  SideBuilder folded = form.side("Conv with folded weights");
  std::vector<double> weights = form.tensor(c.weights).to_doubles();
  const std::vector<double> factors = form.tensor(factor).to_doubles();
  const std::size_t elements = static_cast<std::size_t>(c.kernel * c.kernel), inputs = static_cast<std::size_t>(c.c);
  for (std::size_t k = 0; k < weights.size(); ++k)
    weights[k] *= factors[before ? k / elements % inputs : k / elements / inputs];
  folded.output(c.node(folded, "", folded.folded("folded_weights", form.tensor(c.weights).shape(), weights)));
}

std::vector<ParameterSpec> parameters() {
  std::vector<ParameterSpec> result = convolution_parameters({.c = 32, .o = 64, .extent = 56});
  result.push_back({"before", "1: the factors are those of input channels", 0, 1, 0});
  return result;
}

}  // namespace

const Form& mul_conv() {
  static const Form form = {
      .name = "mul-conv",
      .kind = FormKind::fusion,
      .title = "Conv + Mul, or Mul + Conv = Conv with scaled weights",
      .mathematics =
          "A factor of each output channel scales all weights that make it, a factor of each input channel all "
          "weights that read it: padding is 0 and stays 0. The folded weights are rounded once more.",
      .parameters = parameters(),
      .conditions = {kWindowFits},
      .regions = {{"after", {{"before", 0}, {"stride", 1}}}, {"before", {{"before", 1}}}, {"1x1", {{"kernel", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
