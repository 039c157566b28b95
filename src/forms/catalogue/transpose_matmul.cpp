#include "forms/builder.h"

namespace opdiff::forms {
namespace {

enum Permutation : std::int64_t { kNone, kTransposed, kIdentity };

std::string permuted(SideBuilder& side, const std::string& matrix, std::int64_t permutation) {
  if (permutation == kNone) return matrix;
  return permutation == kTransposed ? side.transpose(matrix, {1, 0}) : side.transpose(matrix, {0, 1});
}

void build(FormBuilder& form) {
  const std::int64_t m = form["m"], n = form["n"], k = form["k"], of_a = form["a"], of_b = form["b"];
  const std::string a = form.input("a_matrix", of_a == kTransposed ? Shape{k, m} : Shape{m, k});
  const std::string b = form.weight("b_matrix", of_b == kTransposed ? Shape{n, k} : Shape{k, n}, k);
  std::string bias;
  if (form["bias"] == 1) bias = form.parameter("bias_row", {n});

  SideBuilder chain = form.side("Transpose + MatMul");
  const std::string y = chain.node("MatMul", {permuted(chain, a, of_a), permuted(chain, b, of_b)});
  chain.output(bias.empty() ? y : chain.node("Add", {y, bias}));

  SideBuilder gemm = form.side("Gemm");
  std::vector<std::string> inputs{a, b};
  if (!bias.empty()) inputs.push_back(bias);
  gemm.output(gemm.node(
      "Gemm", inputs, {{"transA", std::int64_t{of_a == kTransposed}}, {"transB", std::int64_t{of_b == kTransposed}}}));
}

bool is_permutation(const Parameters& p) { return p.at("a") <= kIdentity && p.at("b") <= kIdentity; }
bool permutes(const Parameters& p) { return p.at("a") != kNone || p.at("b") != kNone; }

}  // namespace

const Form& transpose_matmul() {
  static const Form form = {
      .name = "transpose-matmul",
      .kind = FormKind::fusion,
      .title = "Transpose + MatMul (+ Add) = Gemm with transA, transB",
      .mathematics =
          "A product reads its operand by columns instead of moving it. A permutation that moves nothing must not be "
          "taken for a transpose: onnxruntime's GemmTransposeFusion does that (microsoft/onnxruntime#32228), which "
          "square operands hide.",
      .parameters = {{"m", "rows of the result", 1, 8, 256},
                     {"n", "columns of the result", 1, 12, 512},
                     {"k", "terms of each sum", 1, 24, 512},
                     {"a", "the first operand: 0 as it is, 1 transposed, 2 permuted by the identity", 0, 2, 1},
                     {"b", "the second operand, likewise", 0, 2, 0},
                     {"bias", "1: Add follows", 0, 1, 0}},
      .conditions = {{"permutations from 0 to 2", &is_permutation}, {"an operand that is permuted", &permutes}},
      .regions = {{"first operand", {{"a", 1}, {"b", 0}}},
                  {"second operand", {{"a", 0}, {"b", 1}}},
                  {"both", {{"a", 1}, {"b", 1}}},
                  {"Add follows", {{"bias", 1}}},
                  {"identity permutation, square", {{"a", 2}, {"b", 0}, {"bias", 1}, {"m", 5}, {"n", 5}, {"k", 5}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
