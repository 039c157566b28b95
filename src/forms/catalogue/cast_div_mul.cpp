#include "forms/casting.h"

namespace opdiff::forms {
namespace {

enum Casts : std::int64_t { kNone, kDivisor, kFactor };

void build(FormBuilder& form) {
  const Shape shape{form["rows"], form["columns"]};
  const std::string x = form.input("x", shape, Values::positive), factor = form.input("factor", shape);
  const std::int64_t casts = form["casts"];

  SideBuilder chain = form.side("Cast + Div + Mul");
  const std::string divisor = casts == kDivisor ? cast(chain, x, form.dtype()) : x;
  const std::string multiplied = casts == kFactor ? cast(chain, factor, form.dtype()) : factor;
  chain.output(chain.node("Mul", {chain.node("Div", {chain.number(1), divisor}), multiplied}));

  SideBuilder one = form.side("Div");
  one.output(one.node("Div", {factor, x}));
}

bool operand_exists(const Parameters& p) { return p.at("casts") <= kFactor; }

}  // namespace

const Form& cast_div_mul() {
  static const Form form = {
      .name = "cast-div-mul",
      .kind = FormKind::fusion,
      .title = "1 / x * Cast(z) = z / x",
      .mathematics =
          "A reciprocal and a product are one quotient, with one rounding less; a Cast to the type that x has does "
          "nothing. onnxruntime's DivMulFusion and CastElimination together leave a node that reads a removed tensor "
          "(microsoft/onnxruntime#32416).",
      .parameters = {{"rows", "rows", 1, 4, 512},
                     {"columns", "columns", 1, 40, 512},
                     {"casts", "to its own type is cast: 0 nothing, 1 the divisor, 2 the factor", 0, 2, 2}},
      .conditions = {{"an operand from 0 to 2", &operand_exists}},
      .regions = {{"factor cast", {{"casts", 2}}}, {"divisor cast", {{"casts", 1}}}, {"no Cast", {{"casts", 0}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
