#include <iterator>

#include "forms/contraction.h"

namespace opdiff::forms {
namespace {

using Operands = std::vector<std::string>;

struct Chain {
  const char* equation;  // of all of it
  std::string (*build)(SideBuilder&, const Operands&);
};

std::string einsum(SideBuilder& side, const char* equation, const Operands& operands) {
  return side.node("Einsum", operands, {{"equation", std::string(equation)}});
}

std::string two_einsums(SideBuilder& side, const Operands& x) {
  return einsum(side, "bik,kl->bil", {einsum(side, "bij,jk->bik", {x[0], x[1]}), x[2]});
}

std::string transpose_and_product(SideBuilder& side, const Operands& x) {
  return side.node("MatMul", {x[0], side.transpose(x[1], {0, 2, 1})});
}

std::string transposes_around(SideBuilder& side, const Operands& x) {
  return side.transpose(einsum(side, "bij,jk->bik", {side.transpose(x[0], {1, 2, 0}), x[1]}), {2, 0, 1});
}

std::string product_and_sum(SideBuilder& side, const Operands& x) {
  return side.reduce("ReduceSum", side.node("Mul", {x[0], x[1]}), {2}, false);
}

constexpr Chain kChains[] = {{"bij,jk,kl->bil", &two_einsums},
                             {"bij,bkj->bik", &transpose_and_product},
                             {"jbi,jk->kbi", &transposes_around},
                             {"bij,bij->bi", &product_and_sum}};
constexpr std::int64_t kCount = std::size(kChains);

void build(FormBuilder& form) {
  const Chain& chosen = kChains[form["chain"]];
  const Extents extents{{'b', form["b"]}, {'i', form["i"]}, {'j', form["j"]}, {'k', form["k"]}, {'l', form["l"]}};
  Operands operands;
  for (const std::string& labels : parse_equation(chosen.equation).operands)
    operands.push_back(form.input(fmt::format("x{}", operands.size()), Labelled{"", labels}.shape(extents)));

  SideBuilder chain = form.side("chain");
  chain.output(chosen.build(chain, operands));

  SideBuilder one = form.side("one Einsum");
  one.output(einsum(one, chosen.equation, operands));
}

bool chain_exists(const Parameters& p) { return p.at("chain") < kCount; }

}  // namespace

const Form& einsum_chain() {
  static const Form form = {
      .name = "einsum-chain",
      .kind = FormKind::fusion,
      .title = "a chain of contractions and transposes = one Einsum",
      .mathematics =
          "A contraction of contractions is one over all their labels; a transpose renames nothing and only reorders "
          "them; a product whose elements are summed is a contraction. Which order the one Einsum takes is its own "
          "choice.",
      .parameters =
          {{"chain",
            "0 two Einsums (bij,jk,kl->bil) 1 Transpose + MatMul (bij,bkj->bik) 2 Transpose + Einsum + Transpose "
            "(jbi,jk->kbi) 3 Mul + ReduceSum (bij,bij->bi)",
            0, kCount - 1, 1},
           {"b", "batch", 1, 3, 8},
           {"i", "rows", 1, 6, 128},
           {"j", "first inner extent", 1, 12, 64},
           {"k", "columns, or second inner extent", 1, 8, 128},
           {"l", "columns", 1, 5, 64}},
      .conditions = {{"a chain from 0 to 3", &chain_exists}},
      .regions = {{"two Einsums", {{"chain", 0}}},
                  {"Transpose + MatMul", {{"chain", 1}}},
                  {"Transpose + Einsum + Transpose", {{"chain", 2}}},
                  {"Mul + ReduceSum", {{"chain", 3}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
