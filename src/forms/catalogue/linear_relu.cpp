#include "forms/kink.h"
#include "forms/linear.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnLinear l(form);
  const Tensor z =
      approximately("Gemm", {form.tensor(l.x), form.tensor(l.weights)}, {{"transB", std::int64_t{l.transposed}}});
  const std::string bias = form.parameter(
      "bias", Tensor::from_doubles(form.dtype(), {l.n}, bias_beside_kink(z.to_doubles(), z.shape(), form.rng())));
  SideBuilder chain = form.side("Gemm + Relu");
  chain.output(chain.node("Relu", {l.gemm(chain, bias)}));
}

}  // namespace

const Form& linear_relu() {
  static const Form form = {
      .name = "linear-relu",
      .kind = FormKind::fusion,
      .title = "Gemm + Relu in one kernel",
      .mathematics =
          "The maximum with 0 while the sum is still in a register. ONNX has no operator for it, so only a backend "
          "can fuse it. The bias is drawn so that few results come near the kink.",
      .parameters = linear_parameters(),
      .conditions = {},
      .regions = linear_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
