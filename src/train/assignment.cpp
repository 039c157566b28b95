#include "train/assignment.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>

#include "ops/meta_operator.h"

namespace opdiff {
namespace {

constexpr std::string_view kSuffix = "/gradient";

bool is_backward(const Node& node) { return node.domain == kGradientDomain; }

// How well a binding names a node: 0 not at all.
int rank(const Binding& binding, const Node& node) {
  const std::string op = is_backward(node) ? node.op + std::string(kSuffix) : node.op;
  if (binding.what == node.id) return 3;
  if (binding.what == op) return 2;
  if (binding.what.find_first_of("*?[") == std::string::npos) return 0;
  const auto matches = [&](const std::string& text) { return fnmatch(binding.what.c_str(), text.c_str(), 0) == 0; };
  return matches(node.id) || matches(op) ? 1 : 0;
}

}  // namespace

Expected<Assignment> assign(const Graph& step, const std::vector<Binding>& bindings, const std::string& backend) {
  Assignment assignment;
  assignment.specs.push_back(backend);
  std::vector<bool> used(bindings.size(), false);
  std::map<std::string, int> label_of;  // by node id
  const auto place_of = [&](const std::string& spec) {
    const auto found = std::find(assignment.specs.begin(), assignment.specs.end(), spec);
    if (found == assignment.specs.end()) assignment.specs.push_back(spec);
    return static_cast<int>(std::find(assignment.specs.begin(), assignment.specs.end(), spec) -
                            assignment.specs.begin());
  };
  for (const Node& node : step.nodes) {
    int best = 0, chosen = -1;
    for (std::size_t k = 0; k < bindings.size(); ++k) {
      const int found = rank(bindings[k], node);
      if (found > 0) used[k] = true;
      if (found == 0 || found < best) continue;
      best = found;
      chosen = static_cast<int>(k);
    }
    int label = 0;
    if (chosen >= 0) {
      label = place_of(bindings[static_cast<std::size_t>(chosen)].backend);
    } else if (is_backward(node) && node.id.ends_with(kSuffix)) {
      const auto forward = label_of.find(node.id.substr(0, node.id.size() - kSuffix.size()));
      if (forward != label_of.end()) label = forward->second;
    }
    label_of[node.id] = label;
    assignment.labels.push_back(label);
  }
  for (std::size_t k = 0; k < bindings.size(); ++k)
    if (!used[k])
      return make_error("{}={}: the training step has no node and no operator '{}'", bindings[k].what,
                        bindings[k].backend, bindings[k].what);
  return assignment;
}

Assignment assign_like(const Graph& model, const Graph& step, const Assignment& assignment) {
  std::map<std::string, int> label_of;
  for (std::size_t k = 0; k < step.nodes.size(); ++k) label_of[step.nodes[k].id] = assignment.labels[k];
  Assignment result;
  result.specs = assignment.specs;
  for (const Node& node : model.nodes) {
    const auto found = label_of.find(node.id);
    result.labels.push_back(found == label_of.end() ? 0 : found->second);
  }
  return result;
}

}  // namespace opdiff
