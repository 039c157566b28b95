#include "forms/builder.h"

namespace opdiff::forms {
namespace {

void build(FormBuilder& form) {
  const std::int64_t batch = form["batch"], m = form["m"], n = form["n"], k = form["k"];
  const std::string a = form.input("a", {batch, m, k});
  const std::string b = form.weight("b", {batch, k, n}, k);
  const std::vector<std::int64_t> perm{0, 2, 1};

  SideBuilder after = form.side("(A B)^T");
  after.output(after.transpose(after.node("MatMul", {a, b}), perm));

  SideBuilder before = form.side("B^T A^T");
  before.output(before.node("MatMul", {before.transpose(b, perm), before.transpose(a, perm)}));
}

}  // namespace

const Form& transpose_of_product() {
  static const Form form = {
      .name = "transpose-of-product",
      .title = "(A B)^T = B^T A^T",
      .mathematics = "Each element is the same sum of the same products, for every matrix of a batch.",
      .parameters = {{"batch", "matrices", 1, 3, 4},
                     {"m", "rows of A", 1, 8, 96},
                     {"n", "columns of B", 1, 8, 128},
                     {"k", "terms of each sum", 1, 24, 160}},
      .conditions = {},
      .regions = {{"one matrix", {{"batch", 1}}},
                  {"batch", {{"batch", 3}}},
                  {"square", {{"m", 6}, {"n", 6}, {"k", 6}}},
                  {"a row", {{"m", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
