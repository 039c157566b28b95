#include "forms/builder.h"

namespace opdiff::forms {
namespace {

constexpr const char* kOperators[] = {"ReduceMean", "ReduceSum"};

void build(FormBuilder& form) {
  const std::string x = form.input("x", {form["a"], form["b"], form["c"]});
  const char* op = kOperators[form["op"]];
  const bool keepdims = form["keepdims"] == 1;
  const std::vector<std::int64_t> perm{2, 0, 1};
  const std::int64_t axis = form["axis"];

  SideBuilder after = form.side("Transpose, then the reduction");
  after.output(after.reduce(op, after.transpose(x, perm), {axis}, keepdims));

  // Axis `axis` of the transposed tensor is axis perm[axis] of x.
  SideBuilder before = form.side("the reduction, then Transpose");
  const std::int64_t source = perm[static_cast<std::size_t>(axis)];
  std::vector<std::int64_t> left;
  for (const std::int64_t from : perm) {
    if (keepdims) left.push_back(from);
    if (!keepdims && from != source) left.push_back(from > source ? from - 1 : from);
  }
  before.output(before.transpose(before.reduce(op, x, {source}, keepdims), left));
}

bool op_exists(const Parameters& p) { return p.at("op") < 2; }
bool axis_exists(const Parameters& p) { return p.at("axis") < 3; }

}  // namespace

const Form& transpose_through_reduction() {
  static const Form form = {
      .name = "transpose-through-reduction",
      .title = "reduce(Transpose(x), axis) = Transpose(reduce(x, permuted axis))",
      .mathematics =
          "The axis is followed through the permutation [2, 0, 1]; what is summed is the same. Which axes are left, "
          "and in which order, is where rewrites go wrong.",
      .parameters = {{"a", "first extent", 1, 5, 64},
                     {"b", "second extent", 1, 6, 64},
                     {"c", "third extent", 1, 7, 128},
                     {"op", "0 ReduceMean, 1 ReduceSum", 0, 1, 0},
                     {"axis", "of the transposed tensor", 0, 2, 2},
                     {"keepdims", "whether the axis stays", 0, 1, 0}},
      .conditions = {{"an operator from 0 to 1", &op_exists}, {"an axis of three", &axis_exists}},
      .regions = {{"mean", {{"op", 0}}},
                  {"sum", {{"op", 1}}},
                  {"axis goes", {{"keepdims", 0}}},
                  {"axis stays", {{"keepdims", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
