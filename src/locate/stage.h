// Where a culprit's error arises, by rules in a fixed order over what was observed. Data and one pure function.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace opdiff {

enum class Stage {
  kernel,
  fusion_or_rewrite,
  quantisation_rewrite,
  importer,
  gradient,
  update,
  state,
  memory_plan,
  shape,
  non_determinism,
  usage,
};
inline constexpr int kStageCount = 11;
std::string_view to_string(Stage stage);  // "kernel", "fusion-or-rewrite", ...
std::optional<Stage> parse_stage(std::string_view name);

// What a node is for: of a backward node that is wrong alone the stage is `gradient`, whatever else is known.
enum class Role { forward, gradient, update, state };
// `output`: the tensor that is wrong; a normalisation's running statistics are `state`.
Role role_of(const Node& node, const std::string& output);

struct StageEvidence {
  Role role = Role::forward;
  bool repeats_differ = false;        // the same case on the same inputs gave different bits
  bool only_shape_wrong = false;      // the shape is wrong, so no value can be compared
  bool alone_clean = false;           // every node of the culprit is right when run alone, the segment is wrong
  bool quantises = false;             // quantise or dequantise nodes are inside
  bool right_when_rewritten = false;  // the node alone is right when written another way (rewrite.h)
  bool right_without_passes = false;  // the node alone is right with the backend's passes switched off
};

// The first rule that fits: repeats differ: non-determinism. Only the shape is wrong: shape. Nodes clean alone and the
// segment wrong: fusion-or-rewrite, or quantisation-rewrite. A node that is no forward one: its role. Right when
// written another way: importer. Right with the passes off: a rewrite of a single node. Else kernel.
Stage stage_of(const StageEvidence& evidence);

}  // namespace opdiff
