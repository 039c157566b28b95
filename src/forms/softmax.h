// What the forms of Softmax and LogSoftmax share.
#pragma once

#include "forms/builder.h"

namespace opdiff {

// An input x [a, b, c] and the axis of the classes.
struct DrawnClasses {
  std::int64_t axis;
  std::string x;

  explicit DrawnClasses(FormBuilder& form);
  std::map<std::string, Attribute> attributes() const { return {{"axis", axis}}; }
  // x minus its largest class.
  std::string shifted(SideBuilder& side) const;
};

std::vector<ParameterSpec> classes_parameters();
std::vector<Condition> classes_conditions();
std::vector<FormRegion> classes_regions();

}  // namespace opdiff
