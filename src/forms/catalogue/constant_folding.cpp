#include "forms/builder.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::int64_t m = form["m"], n = form["n"], k = form["k"], length = form["length"];
  const std::string x = form.input("x", {m, k});
  const Tensor matrix = form.draw({n, k}), factor = form.draw({1, n}, Values::positive), addend = form.draw({k, 1});

  SideBuilder chain = form.side("constants worked out in the graph");
  const auto constant = [&](const char* name, const Tensor& value) {
    return form["as_nodes"] == 1 ? chain.node("Constant", {}, {{"value", value}}) : chain.constant(name, value);
  };
  std::string weights = chain.transpose(constant("matrix", matrix), {1, 0});
  if (length > 1) weights = chain.node("Mul", {weights, constant("factor", factor)});
  if (length > 2) weights = chain.node("Add", {weights, constant("addend", addend)});
  chain.output(chain.node("MatMul", {x, weights}));

  SideBuilder folded = form.side("one constant");
  std::vector<double> values(static_cast<std::size_t>(k * n));
  for (std::int64_t row = 0; row < k; ++row)
    for (std::int64_t column = 0; column < n; ++column) {
      double value = matrix.at(column * k + row);
      if (length > 1) value *= factor.at(column);
      if (length > 2) value += addend.at(row);
      values[static_cast<std::size_t>(row * n + column)] = value;
    }
  folded.output(folded.node("MatMul", {x, folded.folded("folded", {k, n}, values)}));
}

bool length_is_small(const Parameters& p) { return p.at("length") <= 3; }

}  // namespace

const Form& constant_folding() {
  static const Form form = {
      .name = "constant-folding",
      .kind = FormKind::fusion,
      .title = "a chain of constants = the constant that it gives",
      .mathematics =
          "Whatever depends on constants alone can be worked out once. The chain is rounded after each operator, the "
          "one constant once.",
      .parameters = {{"m", "rows of x", 1, 8, 64},
                     {"n", "columns", 1, 12, 512},
                     {"k", "terms of each sum", 1, 16, 512},
                     {"length", "1 Transpose, 2 and Mul, 3 and Add", 1, 3, 3},
                     {"as_nodes", "1: Constant nodes, 0: initialisers", 0, 1, 0}},
      .conditions = {{"a chain of at most 3", &length_is_small}},
      .regions = {{"initialisers", {{"as_nodes", 0}, {"length", 3}}},
                  {"Constant nodes", {{"as_nodes", 1}}},
                  {"moved only", {{"length", 1}}},
                  {"one product", {{"length", 2}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
