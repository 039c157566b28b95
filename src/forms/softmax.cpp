#include "forms/softmax.h"

namespace opdiff {
namespace {

bool axis_exists(const Parameters& p) { return p.at("axis") < 3; }

}  // namespace

DrawnClasses::DrawnClasses(FormBuilder& form)
    : axis(form["axis"]), x(form.input("x", {form["a"], form["b"], form["c"]})) {}

std::string DrawnClasses::shifted(SideBuilder& side) const {
  return side.node("Sub", {x, side.reduce("ReduceMax", x, {axis})});
}

std::vector<ParameterSpec> classes_parameters() {
  return {{"a", "first extent", 1, 4, 8},
          {"b", "second extent", 1, 6, 64},
          {"c", "third extent", 1, 12, 512},
          {"axis", "of the classes", 0, 2, 2}};
}

std::vector<Condition> classes_conditions() { return {{"an axis of three", &axis_exists}}; }

std::vector<FormRegion> classes_regions() {
  return {{"last axis", {{"axis", 2}}},
          {"middle axis", {{"axis", 1}}},
          {"first axis", {{"axis", 0}}},
          {"one class", {{"axis", 2}, {"c", 1}}}};
}

}  // namespace opdiff
