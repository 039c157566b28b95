// How far an elementary function may be from its exact value on its exact argument, in ulp of the result: the budget
// table of docs/numerics.md, section 4. Data with sources.
#pragma once

#include <span>
#include <string_view>

namespace opdiff {

enum class Function { exp, expm1, log, tanh, erf, pow };

struct BudgetRow {
  Function function;
  std::string_view name;
  double ulps;
  std::string_view source;
};

std::span<const BudgetRow> budget_table();

// Ulps of the row; correctly rounded operations (+ - * / sqrt, conversions) have no row: half an ulp.
double budget(Function function);

// The `approximation` rung reaches to half the digits of the format: 2^12 ulp in f32, 2^5 in f16, 2^4 in bf16, 2^26 in
// f64.
double largest_approximation_ulps(int digits);

}  // namespace opdiff
