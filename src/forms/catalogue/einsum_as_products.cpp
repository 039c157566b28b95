#include <iterator>

#include "forms/contraction.h"

namespace opdiff::forms {
namespace {

constexpr const char* kEquations[] = {
    "ij,jk->ik",        // a product
    "bij,bjk->bik",     // of a batch
    "hbij,hbkj->hbik",  // the scores of attention
    "ij,kj->ki",        // transposed on both ends
    "i,j->ij",          // an outer product
    "ij,ij->i",         // of each row
    "bij,hk->kbi",      // labels that one operand alone has are summed
    "bij->ji",          // a lone operand, summed and transposed: microsoft/onnxruntime#27225
    "ij,jk,kh->ih",     // a chain
    "bi,bj,ijk->bk",    // a bilinear form
};
constexpr std::int64_t kCount = std::size(kEquations);

void build(FormBuilder& form) {
  const std::string equation = kEquations[form["equation"]];
  const Extents extents{{'b', form["b"]}, {'h', form["h"]}, {'i', form["i"]}, {'j', form["j"]}, {'k', form["k"]}};
  std::vector<std::string> operands;
  for (const std::string& labels : parse_equation(equation).operands)
    operands.push_back(form.input(fmt::format("x{}", operands.size()), Labelled{"", labels}.shape(extents)));

  SideBuilder einsum = form.side("Einsum");
  einsum.output(einsum.node("Einsum", operands, {{"equation", equation}}));

  SideBuilder products = form.side("transposes and products");
  products.output(by_products(products, equation, operands, extents));
}

bool equation_exists(const Parameters& p) { return p.at("equation") < kCount; }

}  // namespace

const Form& einsum_as_products() {
  static const Form form = {
      .name = "einsum-as-products",
      .title = "Einsum = Transpose + Reshape + MatMul",
      .mathematics =
          "Labels that both operands have and the result keeps count matrices of a batch, those that it does not keep "
          "are the product's inner axis, the others are rows or columns; a label of one operand alone is summed "
          "first. More than two operands are contracted one after the other, from the first on.",
      .parameters = {{"equation",
                      "0 ij,jk->ik 1 bij,bjk->bik 2 hbij,hbkj->hbik 3 ij,kj->ki 4 i,j->ij 5 ij,ij->i 6 bij,hk->kbi "
                      "7 bij->ji 8 ij,jk,kh->ih 9 bi,bj,ijk->bk",
                      0, kCount - 1, 2},
                     {"b", "batch", 1, 3, 2},
                     {"h", "heads", 1, 4, 8},
                     {"i", "rows", 1, 6, 128},
                     {"j", "inner extent", 1, 12, 64},
                     {"k", "columns", 1, 6, 128}},
      .conditions = {{"an equation from 0 to 9", &equation_exists}},
      .regions = {{"product", {{"equation", 0}}},
                  {"batched", {{"equation", 2}}},
                  {"no inner label", {{"equation", 4}}},
                  {"label of one operand", {{"equation", 6}}},
                  {"one operand", {{"equation", 7}}},
                  {"three operands", {{"equation", 9}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
