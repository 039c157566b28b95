#include "forms/contraction.h"

#include <algorithm>

namespace opdiff {
namespace {

bool has(const std::string& labels, char label) { return labels.find(label) != std::string::npos; }

std::string only(const std::string& labels, const auto& condition) {
  std::string result;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(result), condition);
  return result;
}

std::int64_t count(const std::string& labels, const Extents& extents) {
  return element_count(Labelled{"", labels}.shape(extents));
}

}  // namespace

Shape Labelled::shape(const Extents& extents) const {
  Shape shape;
  for (const char label : labels) shape.push_back(extents.at(label));
  return shape;
}

Labelled summed(SideBuilder& side, const Labelled& x, const std::string& kept) {
  std::vector<std::int64_t> axes;
  for (std::size_t k = 0; k < x.labels.size(); ++k)
    if (!has(kept, x.labels[k])) axes.push_back(static_cast<std::int64_t>(k));
  if (axes.empty()) return x;
  return {side.reduce("ReduceSum", x.tensor, axes, false), only(x.labels, [&](char l) { return has(kept, l); })};
}

Labelled arranged(SideBuilder& side, const Labelled& x, const std::string& labels) {
  if (x.labels == labels) return x;
  std::vector<std::int64_t> perm;
  for (const char label : labels) perm.push_back(static_cast<std::int64_t>(x.labels.find(label)));
  return {side.transpose(x.tensor, perm), labels};
}

Labelled contracted(SideBuilder& side, const Labelled& left, const Labelled& right, const std::string& kept,
                    const Extents& extents) {
  const Labelled a = summed(side, left, kept + right.labels), b = summed(side, right, kept + left.labels);
  const std::string both = only(a.labels, [&](char l) { return has(b.labels, l) && has(kept, l); });
  const std::string inner = only(a.labels, [&](char l) { return has(b.labels, l) && !has(kept, l); });
  const std::string rows = only(a.labels, [&](char l) { return !has(b.labels, l); });
  const std::string columns = only(b.labels, [&](char l) { return !has(a.labels, l); });
  const std::int64_t batch = count(both, extents), m = count(rows, extents), n = count(columns, extents),
                     k = count(inner, extents);
  const std::string x = side.reshape(arranged(side, a, both + rows + inner).tensor, {batch, m, k});
  const std::string y = side.reshape(arranged(side, b, both + inner + columns).tensor, {batch, k, n});
  const Labelled result{"", both + rows + columns};
  return {side.reshape(side.node("MatMul", {x, y}), result.shape(extents)), result.labels};
}

Equation parse_equation(const std::string& equation) {
  Equation parsed;
  const std::size_t arrow = equation.find("->");
  std::string operand;
  for (const char c : equation.substr(0, arrow) + ",") {
    if (c != ',') {
      operand += c;
      continue;
    }
    parsed.operands.push_back(operand);
    operand.clear();
  }
  parsed.result = equation.substr(arrow + 2);
  return parsed;
}

std::string by_products(SideBuilder& side, const std::string& equation, const std::vector<std::string>& operands,
                        const Extents& extents) {
  const Equation parsed = parse_equation(equation);
  Labelled sum{operands[0], parsed.operands[0]};
  for (std::size_t k = 1; k < operands.size(); ++k) {
    std::string kept = parsed.result;  // and what later operands have
    for (std::size_t later = k + 1; later < operands.size(); ++later) kept += parsed.operands[later];
    sum = contracted(side, sum, {operands[k], parsed.operands[k]}, kept, extents);
  }
  return arranged(side, summed(side, sum, parsed.result), parsed.result).tensor;
}

}  // namespace opdiff
