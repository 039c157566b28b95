#include "locate/stage.h"

#include <array>

#include "ops/meta_operator.h"

namespace opdiff {
namespace {

constexpr std::array<std::string_view, kStageCount> kNames = {"kernel",
                                                              "fusion-or-rewrite",
                                                              "quantisation-rewrite",
                                                              "importer",
                                                              "gradient",
                                                              "update",
                                                              "state",
                                                              "memory-plan",
                                                              "shape",
                                                              "non-determinism",
                                                              "usage"};

}  // namespace

std::string_view to_string(Stage stage) { return kNames[static_cast<std::size_t>(stage)]; }

std::optional<Stage> parse_stage(std::string_view name) {
  for (std::size_t index = 0; index < kNames.size(); ++index) {
    if (kNames[index] == name) return static_cast<Stage>(index);
  }
  return std::nullopt;
}

Role role_of(const Node& node, const std::string& output) {
  if (node.domain == kGradientDomain) return Role::gradient;
  if (const MetaOperator* op = find_operator(node.domain, node.op); op && op->updates) return Role::update;
  if (node.op == "BatchNormalization")
    for (std::size_t k = 1; k < node.outputs.size(); ++k)
      if (node.outputs[k] == output) return Role::state;
  return Role::forward;
}

Stage stage_of(const StageEvidence& evidence) {
  if (evidence.repeats_differ) return Stage::non_determinism;
  if (evidence.only_shape_wrong) return Stage::shape;
  if (evidence.alone_clean) return evidence.quantises ? Stage::quantisation_rewrite : Stage::fusion_or_rewrite;
  if (evidence.role == Role::gradient) return Stage::gradient;
  if (evidence.role == Role::update) return Stage::update;
  if (evidence.role == Role::state) return Stage::state;
  if (evidence.right_when_rewritten) return Stage::importer;
  if (evidence.right_without_passes) return Stage::fusion_or_rewrite;
  return Stage::kernel;
}

}  // namespace opdiff
