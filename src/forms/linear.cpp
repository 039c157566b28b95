#include "forms/linear.h"

namespace opdiff {

DrawnLinear::DrawnLinear(FormBuilder& form)
    : m(form["m"]),
      n(form["n"]),
      k(form["k"]),
      transposed(form["transposed"] == 1),
      x(form.input("x", {m, k})),
      weights(form.weight("weights", transposed ? Shape{n, k} : Shape{k, n}, k)) {}

std::string DrawnLinear::gemm(SideBuilder& side, const std::string& bias) const {
  return side.node("Gemm", {x, weights, bias}, {{"transB", std::int64_t{transposed}}});
}

std::string DrawnLinear::product(SideBuilder& side) const {
  return side.node("MatMul", {x, transposed ? side.transpose(weights, {1, 0}) : weights});
}

std::vector<ParameterSpec> linear_parameters() {
  return {{"m", "rows of x", 1, 8, 256},
          {"n", "columns of the result", 1, 12, 1024},
          {"k", "terms of each sum", 1, 24, 512},
          {"transposed", "1: the weights are [n, k]", 0, 1, 1}};
}

std::vector<FormRegion> linear_regions() {
  return {{"weights [n, k]", {{"transposed", 1}}},
          {"weights [k, n]", {{"transposed", 0}}},
          {"one row", {{"m", 1}}},
          {"square", {{"m", 6}, {"n", 6}, {"k", 6}}}};
}

}  // namespace opdiff
