#include "forms/coverage.h"

#include <gtest/gtest.h>

namespace opdiff {
namespace {

const Form& form_of_three_regions() {
  static const Form form = [] {
    Form f;
    f.name = "three";
    f.regions = {{"common", {}}, {"stride 2", {{"stride", 2}}}, {"1x1", {{"kernel", 1}}}};
    return f;
  }();
  return form;
}

TEST(Coverage, ACaseCountsInEveryRegionItLiesIn) {
  Coverage coverage;
  coverage.add(form_of_three_regions(), {{"stride", 2}, {"kernel", 1}}, "torch", "float", "forward", true);
  EXPECT_EQ(coverage.cells().size(), 3u);
  coverage.add(form_of_three_regions(), {{"stride", 1}, {"kernel", 3}}, "torch", "float", "forward", false);
  const auto& common = coverage.cells().at({"three", "common", "torch", "float", "forward"});
  EXPECT_EQ(common.ran, 1);
  EXPECT_EQ(common.unsupported, 1);
}

TEST(Coverage, TheLeastCoveredCellIsServedNext) {
  Coverage coverage;
  const Form& form = form_of_three_regions();
  const std::vector<std::string> backends = {"torch", "onednn"};
  EXPECT_EQ(coverage.least(form, backends, "float", "forward", {0, 0, 0}), 0u);
  EXPECT_EQ(coverage.least(form, backends, "float", "forward", {1, 0, 0}), 1u);
  for (const std::string& backend : backends)
    coverage.add(form, {{"stride", 2}, {"kernel", 3}}, backend, "float", "forward", true);
  EXPECT_EQ(coverage.least(form, backends, "float", "forward", {0, 0, 0}), 2u);
  // Served on one backend only: still the least of the other.
  coverage.add(form, {{"stride", 1}, {"kernel", 1}}, "torch", "float", "forward", true);
  EXPECT_EQ(coverage.least(form, backends, "float", "forward", {0, 0, 0}), 2u);
  EXPECT_EQ(coverage.least(form, backends, "bfloat16", "forward", {0, 0, 0}), 0u);
}

}  // namespace
}  // namespace opdiff
