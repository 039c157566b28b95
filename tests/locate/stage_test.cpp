#include "locate/stage.h"

#include <gtest/gtest.h>

#include "ops/meta_operator.h"

namespace opdiff {
namespace {

TEST(Stage, NamesReadBack) {
  for (int i = 0; i < kStageCount; ++i) {
    const Stage stage = static_cast<Stage>(i);
    EXPECT_EQ(parse_stage(to_string(stage)), stage);
  }
  EXPECT_EQ(to_string(Stage::fusion_or_rewrite), "fusion-or-rewrite");
  EXPECT_EQ(to_string(Stage::non_determinism), "non-determinism");
  EXPECT_FALSE(parse_stage("fusion"));
}

// All combinations: the first rule of design.md, section 5.5, that fits.
TEST(Stage, RulesInOrder) {
  constexpr Role kRoles[] = {Role::forward, Role::gradient, Role::update, Role::state};
  constexpr Stage kOfRole[] = {Stage::kernel, Stage::gradient, Stage::update, Stage::state};
  for (int role = 0; role < 4; ++role)
    for (int bits = 0; bits < 64; ++bits) {
      const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
      const StageEvidence evidence{kRoles[role], bit(0), bit(1), bit(2), bit(3), bit(4), bit(5)};
      const Stage expected = bit(0)     ? Stage::non_determinism
                             : bit(1)   ? Stage::shape
                             : bit(2)   ? (bit(3) ? Stage::quantisation_rewrite : Stage::fusion_or_rewrite)
                             : role > 0 ? kOfRole[role]
                             : bit(4)   ? Stage::importer
                             : bit(5)   ? Stage::fusion_or_rewrite
                                        : Stage::kernel;
      EXPECT_EQ(stage_of(evidence), expected) << role << " " << bits;
    }
}

Node node(std::string op, std::string_view domain, std::vector<std::string> outputs) {
  Node n;
  n.op = std::move(op);
  n.domain = domain;
  n.outputs = std::move(outputs);
  return n;
}

TEST(Stage, RolesOfNodes) {
  EXPECT_EQ(role_of(node("Conv", "", {"y"}), "y"), Role::forward);
  EXPECT_EQ(role_of(node("Conv", kGradientDomain, {"dx"}), "dx"), Role::gradient);
  EXPECT_EQ(role_of(node("SGD", kTrainingDomain, {"w/new"}), "w/new"), Role::update);
  EXPECT_EQ(role_of(node("MSELoss", kTrainingDomain, {"loss"}), "loss"), Role::forward);
  const Node normalisation = node("BatchNormalization", "", {"y", "mean/new", "var/new"});
  EXPECT_EQ(role_of(normalisation, "y"), Role::forward);
  EXPECT_EQ(role_of(normalisation, "var/new"), Role::state);
}

}  // namespace
}  // namespace opdiff
