#include "forms/casting.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const Shape shape{form["rows"], form["columns"]};
  const std::string x = form.input("x", shape, Values::positive), factor = form.input("factor", shape);
  const bool casts = form["casts"] == 1;

  SideBuilder chain = form.side(casts ? "Cast + Div + Mul" : "Div + Mul");
  const std::string divisor = casts ? cast(chain, x, form.dtype()) : x;
  chain.output(chain.node("Mul", {chain.node("Div", {chain.number(1), divisor}), factor}));

  SideBuilder one = form.side("Div");
  one.output(one.node("Div", {factor, x}));
}

}  // namespace

const Form& cast_div_mul() {
  static const Form form = {
      .name = "cast-div-mul",
      .kind = FormKind::fusion,
      .title = "1 / Cast(x) * z = z / x",
      .mathematics =
          "A reciprocal and a product are one quotient, with one rounding less; a Cast to the type that x has does "
          "nothing. "
          "onnxruntime's DivMulFusion and CastElimination together leave a node that reads a removed tensor "
          "(microsoft/onnxruntime#32416).",
      .parameters = {{"rows", "rows", 1, 4, 1024},
                     {"columns", "columns", 1, 40, 1024},
                     {"casts", "whether x is cast to its own type first", 0, 1, 1}},
      .conditions = {},
      .regions = {{"Cast first", {{"casts", 1}}}, {"no Cast", {{"casts", 0}}}, {"one row", {{"rows", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
