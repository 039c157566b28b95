#include "forms/bundle.h"

#include <algorithm>

#include "plan/comparison.h"

namespace opdiff {
namespace {

void add_prefix(const std::string& prefix, std::vector<std::string>& names) {
  for (std::string& name : names)
    if (!name.empty()) name = prefix + name;
}

void add_prefix(const std::string& prefix, std::map<std::string, std::string>& names,
                std::map<std::string, std::string>& into) {
  for (const auto& [from, to] : names) into[prefix + from] = prefix + to;
}

}  // namespace

std::string bundle_prefix(std::size_t k) { return "case" + std::to_string(k) + "_"; }

Bundle bundle(const std::vector<const RunnableCase*>& cases, std::size_t side) {
  Bundle all;
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const std::string prefix = bundle_prefix(k);
    const RunnableSide& one = cases[k]->sides[side];
    Graph graph = one.graph;
    all.graph.name = graph.name;
    for (const auto& [domain, version] : graph.opsets) all.graph.opsets[domain] = version;
    for (Node& node : graph.nodes) {
      node.id = prefix + node.id;
      add_prefix(prefix, node.inputs);
      add_prefix(prefix, node.outputs);
      all.graph.nodes.push_back(std::move(node));
    }
    for (auto& [name, tensor] : graph.initialisers) all.graph.initialisers[prefix + name] = std::move(tensor);
    for (auto [from, to] : {std::pair{&graph.inputs, &all.graph.inputs},
                            {&graph.outputs, &all.graph.outputs},
                            {&graph.values, &all.graph.values}})
      for (ValueInfo& value : *from) {
        value.name = prefix + value.name;
        to->push_back(std::move(value));
      }
    for (const ValueInfo& input : one.graph.inputs) all.inputs[prefix + input.name] = cases[k]->inputs.at(input.name);
    if (!one.training) continue;
    if (!all.training) all.training.emplace();
    Training training = *one.training;
    add_prefix(prefix, training.cotangents, all.training->cotangents);
    add_prefix(prefix, training.gradients, all.training->gradients);
    for (const std::string& id : training.backward) all.training->backward.insert(prefix + id);
  }
  return all;
}

std::vector<Outcome> run_cases(Backend& backend, const std::vector<const RunnableCase*>& cases, std::size_t side) {
  if (cases.empty()) return {};
  const Bundle all = bundle(cases, side);
  const auto lacks = [&](const Node& node) { return lacks_gradient(backend.info(), node); };
  if (std::any_of(all.graph.nodes.begin(), all.graph.nodes.end(), lacks))
    return {cases.size(), Outcome::failure(OutcomeKind::unsupported, std::string(kNoGradients))};
  PrepareOptions options;
  options.training = all.training ? &*all.training : nullptr;
  const Outcome outcome = run_once(backend, all.graph, all.inputs, options);
  if (!outcome.ok() && cases.size() > 1) {
    const auto middle = cases.begin() + static_cast<std::ptrdiff_t>(cases.size() / 2);
    std::vector<Outcome> outcomes = run_cases(backend, {cases.begin(), middle}, side);
    for (Outcome& one : run_cases(backend, {middle, cases.end()}, side)) outcomes.push_back(std::move(one));
    return outcomes;
  }
  std::vector<Outcome> outcomes(cases.size());
  for (std::size_t k = 0; k < cases.size(); ++k) {
    outcomes[k].kind = outcome.kind;
    outcomes[k].reason = outcome.reason;
    const std::string prefix = bundle_prefix(k);
    for (const ValueInfo& output : cases[k]->sides[side].graph.outputs)
      if (const auto got = outcome.outputs.find(prefix + output.name); got != outcome.outputs.end())
        outcomes[k].outputs[output.name] = got->second;
  }
  return outcomes;
}

}  // namespace opdiff
