#include "numerics/budget.h"

#include <cmath>

namespace opdiff {

std::span<const BudgetRow> budget_table() {
  static constexpr BudgetRow kTable[] = {
      {Function::exp, "exp", 4, "default; glibc, SLEEF and oneDNN document 1 to 2 ulp"},
      {Function::expm1, "expm1", 4, "default"},
      {Function::log, "log", 4, "default"},
      {Function::tanh, "tanh", 4, "default"},
      {Function::erf, "erf", 4, "default"},
      {Function::pow, "pow", 4, "default"},
  };
  return kTable;
}

double budget(Function function) { return budget_table()[static_cast<std::size_t>(function)].ulps; }

double largest_approximation_ulps(int digits) { return std::ldexp(1.0, digits / 2); }

}  // namespace opdiff
