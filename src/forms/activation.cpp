#include "forms/activation.h"

#include <cmath>

namespace opdiff {

std::vector<ParameterSpec> activation_parameters() {
  return {{"rows", "rows", 1, 4, 512},
          {"columns", "columns", 1, 40, 512},
          {"magnitude", "exponent of the size of x: 2^magnitude", -4, 1, 0}};
}

std::vector<FormRegion> activation_regions() {
  return {{"ordinary arguments", {{"magnitude", 0}}},
          {"small arguments", {{"magnitude", -4}}},
          {"large arguments", {{"magnitude", 1}}}};
}

std::string draw_argument(FormBuilder& form, Values values) {
  std::vector<double> numbers = form.draw({form["rows"], form["columns"]}, values).to_doubles();
  for (double& number : numbers) number = std::ldexp(number, static_cast<int>(form["magnitude"]));
  return form.input("x", Tensor::from_doubles(form.dtype(), {form["rows"], form["columns"]}, numbers));
}

}  // namespace opdiff
