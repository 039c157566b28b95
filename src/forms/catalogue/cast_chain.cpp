#include "forms/casting.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::string x = form.input("x", {form["rows"], form["columns"]});
  const DType own = form.dtype();
  const std::int64_t through = form["through"];
  SideBuilder chain = form.side("chain of Casts");
  if (through == 0) {
    chain.output(cast(chain, cast(chain, x, DType::f64), own));
    SideBuilder identity = form.side("what is left");
    identity.output(identity.node("Identity", {x}));
    return;
  }
  const DType narrow = through == 1 ? DType::bf16 : DType::f16;
  chain.output(cast(chain, cast(chain, cast(chain, x, narrow), own), narrow));
  SideBuilder one = form.side("what is left");
  one.output(cast(one, x, narrow));
}

bool type_exists(const Parameters& p) { return p.at("through") <= 2; }

}  // namespace

const Form& cast_chain() {
  static const Form form = {
      .name = "cast-chain",
      .kind = FormKind::fusion,
      .title = "Casts to a wider type and back = nothing; to a narrower one twice = once",
      .mathematics =
          "Every number has its place in double, so that the way back loses nothing. A number that was rounded to "
          "bfloat16 or float16 is one already: in its own type and back it stays itself, as long as it is no "
          "overflow. To remove the narrow Cast as well would be wrong.",
      .parameters = {{"rows", "rows", 1, 4, 512},
                     {"columns", "columns", 1, 40, 512},
                     {"through", "0 double and back, 1 bfloat16 twice, 2 float16 twice", 0, 2, 1}},
      .conditions = {{"a type from 0 to 2", &type_exists}},
      .regions = {{"double and back", {{"through", 0}}},
                  {"bfloat16 twice", {{"through", 1}}},
                  {"float16 twice", {{"through", 2}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
