#include "forms/convolution.h"
#include "forms/kink.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  const Tensor z = c.value(form);
  const std::vector<double> residual = moved_from_kink(z.to_doubles(), form.draw(z.shape()).to_doubles());
  const std::string r = form.input("residual", Tensor::from_doubles(form.dtype(), z.shape(), residual));
  SideBuilder chain = form.side("Conv + Add + Relu");
  const std::string y = c.node(chain);
  const bool residual_first = form["residual_first"] == 1;
  chain.output(chain.node("Relu", {chain.node("Add", {residual_first ? r : y, residual_first ? y : r})}));
}

std::vector<ParameterSpec> parameters() {
  std::vector<ParameterSpec> result = convolution_parameters({.c = 64, .o = 64, .extent = 56});
  result.push_back({"residual_first", "whether the residual is the first operand of Add", 0, 1, 0});
  return result;
}

}  // namespace

const Form& conv_add_relu() {
  static const Form form = {
      .name = "conv-add-relu",
      .kind = FormKind::fusion,
      .title = "Conv + Add + Relu in one kernel",
      .mathematics =
          "The end of a residual block: the residual may be where the sum starts, the maximum is taken in a register. "
          "ONNX has no operator for it, so only a backend can fuse it. No sum is near the kink.",
      .parameters = parameters(),
      .conditions = {kWindowFits},
      .regions = {{"stride 1", {{"stride", 1}, {"residual_first", 0}}},
                  {"residual first", {{"residual_first", 1}}},
                  {"stride 2", {{"stride", 2}}},
                  {"1x1", {{"kernel", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
