// Einsum by hand: tensors whose axes have labels, contracted in pairs by one product of matrices each.
#pragma once

#include "forms/builder.h"

namespace opdiff {

using Extents = std::map<char, std::int64_t>;

struct Labelled {
  std::string tensor;
  std::string labels;  // one character an axis, no two the same

  Shape shape(const Extents& extents) const;
};

// What is summed over `x`'s labels that are not in `kept`.
Labelled summed(SideBuilder& side, const Labelled& x, const std::string& kept);
// The axes in this order of labels.
Labelled arranged(SideBuilder& side, const Labelled& x, const std::string& labels);
// sum over the labels that are not in `kept` of a b: [labels of both, of a alone, of b alone].
Labelled contracted(SideBuilder& side, const Labelled& a, const Labelled& b, const std::string& kept,
                    const Extents& extents);
// The whole equation, "ij,jk->ik", operand by operand from the first on; no label twice in one operand.
std::string by_products(SideBuilder& side, const std::string& equation, const std::vector<std::string>& operands,
                        const Extents& extents);

// "ij,jk->ik" -> {"ij", "jk"} and "ik".
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};
Equation parse_equation(const std::string& equation);

}  // namespace opdiff
