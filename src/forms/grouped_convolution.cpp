#include "forms/grouped_convolution.h"

namespace opdiff {

void build_grouped_convolution(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder conv = form.side("Conv with group");
  conv.output(c.node(conv));

  SideBuilder split = form.side("Slice + Conv of each group + Concat");
  std::vector<std::string> parts;
  for (std::int64_t k = 0; k < c.group; ++k)
    parts.push_back(split.node(
        "Conv", {split.slice(c.x, 1, k * c.c, (k + 1) * c.c), split.slice(c.weights, 0, k * c.o, (k + 1) * c.o)},
        c.attributes()));
  split.output(split.concat(parts, 1));

  SideBuilder einsum = form.side("pad + unfold + einsum per group");
  const std::int64_t elements = c.kernel * c.kernel;
  const std::string columns =
      einsum.reshape(unfold(einsum, c.x, c, c.group), {c.n, c.group, c.c, elements, c.out_h() * c.out_w()});
  const std::string kernels = einsum.reshape(c.weights, {c.group, c.o, c.c, elements});
  const std::string y = einsum.node("Einsum", {kernels, columns}, {{"equation", std::string("gock,ngckp->ngop")}});
  einsum.output(einsum.reshape(y, c.y_shape()));
}

}  // namespace opdiff
