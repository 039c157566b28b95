#include "locate/passes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace opdiff {
namespace {

std::vector<std::string> many(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("P" + std::to_string(100 + i));
  return names;
}
bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(Passes, OnePassIsFoundByHalving) {
  const PassBlame blame = blame_passes(many(64), [](const auto& off) { return has(off, "P137"); });
  EXPECT_EQ(blame.text(), "P137");
  EXPECT_LE(blame.probes, 13);  // one for all, two for each of six halvings
}

TEST(Passes, TwoThatAreBothNeededAreJoinedByPlus) {
  for (const auto& [a, b] : {std::pair{"P100", "P163"}, {"P110", "P111"}, {"P131", "P132"}}) {
    const PassBlame blame = blame_passes(many(64), [&](const auto& off) { return has(off, a) || has(off, b); });
    EXPECT_EQ(blame.text(), std::string(a) + "+" + b);
  }
}

TEST(Passes, TwoThatEachMakeTheFailureAreAlternatives) {
  const PassBlame blame = blame_passes(many(64), [](const auto& off) { return has(off, "P103") && has(off, "P150"); });
  EXPECT_EQ(blame.text(), "P103|P150");
}

TEST(Passes, NoneWhenNothingRepairs) {
  EXPECT_EQ(blame_passes(many(64), [](const auto&) { return false; }).text(), "");
  EXPECT_EQ(blame_passes({}, [](const auto&) { return true; }).text(), "");
  EXPECT_EQ(blame_passes({"Only"}, [](const auto&) { return true; }).text(), "Only");
}

}  // namespace
}  // namespace opdiff
