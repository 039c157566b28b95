#include "forms/pooling.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const WindowGeometry g(form);
  const std::string x = form.input("x", {g.n, g.c, g.h, g.w});
  SideBuilder pool = form.side("AveragePool");
  pool.output(average_pool(pool, x, g));

  SideBuilder conv = form.side("depthwise Conv");
  const std::int64_t elements = g.kernel * g.kernel;
  const std::vector<double> equal(static_cast<std::size_t>(g.c * elements), 1.0 / static_cast<double>(elements));
  conv.output(conv.node("Conv", {x, conv.folded("equal", {g.c, 1, g.kernel, g.kernel}, equal)}, g.attributes(g.c)));
}

}  // namespace

const Form& average_pool_as_conv() {
  static const Form form = {
      .name = "average-pool-as-conv",
      .title = "AveragePool = a depthwise Conv of equal weights",
      .mathematics =
          "The mean of a window is a convolution of each channel with the weights 1 / kernel^2, if padding counts. "
          "Unlike the pool, the convolution scales each element before it adds.",
      .parameters = average_pool_parameters(),
      .conditions = average_pool_conditions(),
      .regions = average_pool_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
