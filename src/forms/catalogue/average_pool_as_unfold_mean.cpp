#include "forms/pooling.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const WindowGeometry g(form);
  const std::string x = form.input("x", {g.n, g.c, g.h, g.w});
  SideBuilder pool = form.side("AveragePool");
  pool.output(average_pool(pool, x, g));

  SideBuilder mean = form.side("pad + unfold + ReduceMean");
  const std::string y = mean.reduce("ReduceMean", unfold(mean, x, g), {2}, false);
  mean.output(mean.reshape(y, {g.n, g.c, g.out_h(), g.out_w()}));
}

}  // namespace

const Form& average_pool_as_unfold_mean() {
  static const Form form = {
      .name = "average-pool-as-unfold-mean",
      .title = "AveragePool = pad + unfold + ReduceMean",
      .mathematics = "The elements of each window side by side, and their mean, if padding counts.",
      .parameters = average_pool_parameters(),
      .conditions = average_pool_conditions(),
      .regions = average_pool_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
