#include <algorithm>
#include <iterator>

#include "forms/builder.h"

namespace opdiff::forms {
namespace {

// By the parameter `op`. Those of two operands come last.
constexpr const char* kOperators[] = {"Relu", "Sigmoid", "Tanh", "Add", "Mul", "Sub"};
constexpr std::int64_t kCount = std::size(kOperators), kFirstBinary = 3;

std::vector<std::int64_t> permutation(std::int64_t number) {
  std::vector<std::int64_t> perm{0, 1, 2};
  for (std::int64_t k = 0; k < number; ++k) std::next_permutation(perm.begin(), perm.end());
  return perm;
}

void build(FormBuilder& form) {
  const Shape shape{form["a"], form["b"], form["c"]};
  const char* op = kOperators[form["op"]];
  const auto perm = permutation(form["permutation"]);
  std::vector<std::string> operands{form.input("x", shape, Values::nonzero)};
  if (form["op"] >= kFirstBinary) operands.push_back(form.input("z", shape));

  SideBuilder after = form.side("Transpose behind");
  after.output(after.transpose(after.node(op, operands), perm));

  SideBuilder before = form.side("Transpose before");
  std::vector<std::string> moved;
  for (const std::string& operand : operands) moved.push_back(before.transpose(operand, perm));
  before.output(before.node(op, moved));
}

bool op_exists(const Parameters& p) { return p.at("op") < kCount; }
bool permutation_exists(const Parameters& p) { return p.at("permutation") < 6; }

}  // namespace

const Form& transpose_through_elementwise() {
  static const Form form = {
      .name = "transpose-through-elementwise",
      .title = "Transpose(f(x, z)) = f(Transpose(x), Transpose(z))",
      .mathematics =
          "An elementwise function does not know where its elements are. Optimisers push transposes through such "
          "operators until two of them meet and cancel.",
      .parameters = {{"a", "first extent", 1, 5, 64},
                     {"b", "second extent", 1, 6, 64},
                     {"c", "third extent", 1, 7, 64},
                     {"op", "0 Relu, 1 Sigmoid, 2 Tanh, 3 Add, 4 Mul, 5 Sub", 0, kCount - 1, 3},
                     {"permutation", "of the axes, in lexicographic order; 0 is the identity", 0, 5, 5}},
      .conditions = {{"an operator from 0 to 5", &op_exists}, {"a permutation from 0 to 5", &permutation_exists}},
      .regions = {{"one operand", {{"op", 1}}},
                  {"two operands", {{"op", 5}}},
                  {"reversed axes", {{"permutation", 5}}},
                  {"cyclic", {{"permutation", 3}}},
                  {"identity", {{"permutation", 0}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
