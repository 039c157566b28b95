#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder conv = form.side("Conv");
  conv.output(c.node(conv));

  SideBuilder loops = form.side("seven loops");
  const std::vector<std::string> elements = window_elements(loops, c.x, c);
  const std::string all = loops.reshape(c.weights, {1, c.o, 1, 1, c.c * c.kernel * c.kernel});
  std::vector<std::string> terms;
  for (std::int64_t channel = 0; channel < c.c; ++channel)
    for (const std::string& element : elements) {
      const auto k = static_cast<std::int64_t>(terms.size());
      const std::string weight = loops.reshape(loops.slice(all, 4, k, k + 1), {1, c.o, 1, 1});
      terms.push_back(loops.node("Mul", {loops.slice(element, 1, channel, channel + 1), weight}));
    }
  loops.output(loops.sum(terms));
}

}  // namespace

const Form& conv_as_loops() {
  static const Form form = {
      .name = "conv-as-loops",
      .title = "Conv = seven nested loops",
      .mathematics =
          "y[n,o,i,j] += w[o,c,a,b] x[n,c,i s + a d - p, j s + b d - p], the definition as it is written down. The "
          "loops over c, a and b are unrolled into nodes, one product and one sum each; those over n, o, i and j are "
          "the elements of their tensors. The order of summation is index order, and each sum is rounded.",
      .parameters = convolution_parameters({.c = 4, .o = 8, .extent = 56}),
      .conditions = {kWindowFits},
      .regions = {{"stride 1", {{"stride", 1}, {"dilation", 1}}},
                  {"stride 2", {{"stride", 2}}},
                  {"dilation 2", {{"dilation", 2}}},
                  {"one channel", {{"c", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
