#include "forms/builder.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::int64_t batch = form["batch"], m = form["m"], n = form["n"], k = form["k"];
  const Shape rows = batch == 0 ? Shape{m} : Shape{batch, m};
  const auto with = [&](std::int64_t last) {
    Shape shape = rows;
    shape.push_back(last);
    return shape;
  };
  const std::string x = form.input("x", with(k));
  const std::string weights = form.weight("weights", {k, n}, k);
  const std::string bias = form.parameter("bias", {n});

  SideBuilder chain = form.side("MatMul + Add");
  chain.output(chain.node("Add", {chain.node("MatMul", {x, weights}), bias}));

  SideBuilder gemm = form.side("Gemm");
  if (batch == 0)
    gemm.output(gemm.node("Gemm", {x, weights, bias}));
  else
    gemm.output(gemm.reshape(gemm.node("Gemm", {gemm.reshape(x, {batch * m, k}), weights, bias}), with(n)));
}

}  // namespace

const Form& matmul_add() {
  static const Form form = {
      .name = "matmul-add",
      .kind = FormKind::fusion,
      .title = "MatMul + Add = Gemm",
      .mathematics =
          "A bias that broadcasts over the rows is Gemm's C. A batch of matrices by one matrix is one product of all "
          "their rows. onnxruntime's MatMulAddFusion is this.",
      .parameters = {{"batch", "matrices of x; 0: x is one matrix", 0, 3, 0},
                     {"m", "rows of a matrix", 1, 8, 256},
                     {"n", "columns of the result", 1, 12, 1024},
                     {"k", "terms of each sum", 1, 24, 512}},
      .conditions = {},
      .regions = {{"matrices", {{"batch", 0}}},
                  {"batch", {{"batch", 3}}},
                  {"one row", {{"m", 1}, {"batch", 0}}},
                  {"one column", {{"n", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
