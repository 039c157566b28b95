#include "locate/stage.h"

#include <gtest/gtest.h>

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

// All 64 combinations: the first rule of design.md, section 5.5, that fits.
TEST(Stage, RulesInOrder) {
  for (int bits = 0; bits < 64; ++bits) {
    const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
    const StageEvidence evidence{bit(0), bit(1), bit(2), bit(3), bit(4), bit(5)};
    const Stage expected = bit(0)   ? Stage::non_determinism
                           : bit(1) ? Stage::shape
                           : bit(2) ? (bit(3) ? Stage::quantisation_rewrite : Stage::fusion_or_rewrite)
                           : bit(4) ? Stage::importer
                           : bit(5) ? Stage::fusion_or_rewrite
                                    : Stage::kernel;
    EXPECT_EQ(stage_of(evidence), expected) << bits;
  }
}

}  // namespace
}  // namespace opdiff
