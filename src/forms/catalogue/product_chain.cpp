#include "forms/builder.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::int64_t i = form["i"], j = form["j"], k = form["k"], l = form["l"];
  const std::string a = form.input("a", {i, j});
  const std::string b = form.weight("b", {j, k}, j);
  const std::string c = form.weight("c", {k, l}, k);

  SideBuilder left = form.side("(A B) C");
  left.output(left.node("MatMul", {left.node("MatMul", {a, b}), c}));

  SideBuilder right = form.side("A (B C)");
  right.output(right.node("MatMul", {a, right.node("MatMul", {b, c})}));
}

}  // namespace

const Form& product_chain() {
  static const Form form = {
      .name = "product-chain",
      .title = "(A B) C = A (B C)",
      .mathematics =
          "Products are associative; the costs i j k + i k l and j k l + i j l differ, and so do the intermediate "
          "roundings.",
      .parameters = {{"i", "rows of A", 1, 8, 256},
                     {"j", "columns of A", 1, 16, 256},
                     {"k", "columns of B", 1, 16, 256},
                     {"l", "columns of C", 1, 8, 256}},
      .conditions = {},
      .regions = {{"left is cheaper", {{"i", 2}, {"l", 8}}},
                  {"right is cheaper", {{"i", 8}, {"l", 2}}},
                  {"a column", {{"l", 1}}},
                  {"rank 1 inside", {{"k", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
