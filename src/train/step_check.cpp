#include "train/step_check.h"

#include <algorithm>

#include "graph/uses.h"
#include "judge/judge.h"
#include "numerics/parallel.h"
#include "plan/segment.h"

namespace opdiff {

constexpr std::int64_t kUnlikelySteps = 3;

bool CheckedNode::is_defect() const {
  const auto count = [&](Rung rung) { return rungs[static_cast<std::size_t>(rung)]; };
  return count(Rung::defect) > 0 || count(Rung::unlikely) >= kUnlikelySteps;
}

void add_rows(const std::vector<CheckedNode>& rows, std::vector<CheckedNode>* to) {
  if (to->empty()) {
    *to = rows;
    return;
  }
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const CheckedNode& row = rows[k];
    CheckedNode& sum = (*to)[k];
    sum.steps += row.steps;
    sum.known += row.known;
    sum.unproven += row.unproven;
    for (std::size_t rung = 0; rung < row.rungs.size(); ++rung) sum.rungs[rung] += row.rungs[rung];
    if (!row.failure.empty()) sum.failure = row.failure;
    const bool is_first = row.worst.rung == sum.worst.rung && row.worst_step < sum.worst_step;
    if (row.worst_step == 0 || (sum.worst_step != 0 && row.worst.rung <= sum.worst.rung && !is_first)) continue;
    sum.worst = row.worst;
    sum.output = row.output;
    sum.worst_step = row.worst_step;
  }
}

// The nodes of one backend side by side, in one graph that is prepared once.
struct StepCheck::Group {
  std::vector<int> nodes;
  IsolatedNodes isolated;
  std::map<std::string, std::string> name_of;  // tensor of the whole graph -> output of `isolated`
  int handle = -1;
  int of_death = 0;
  std::optional<std::vector<KnownDivergence>> known;  // read once: what is being judged looks at it
};

StepCheck::StepCheck(const Graph& graph, const TypeMap& types, const std::vector<int>& labels,
                     std::vector<Party>& parties, int threads)
    : graph_(graph), labels_(labels), parties_(parties), pool_(threads, true) {
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
    CheckedNode node;
    node.id = graph.nodes[k].id;
    node.op = graph.nodes[k].op;
    node.backend = parties[static_cast<std::size_t>(labels[k])].spec;
    nodes_.push_back(std::move(node));
  }
  for (std::size_t label = 0; label < parties.size(); ++label) {
    auto group = std::make_unique<Group>();
    for (std::size_t k = 0; k < labels.size(); ++k)
      if (labels[k] == static_cast<int>(label) && graph.nodes[k].op != "Constant")
        group->nodes.push_back(static_cast<int>(k));
    if (parties[label].open && !group->nodes.empty()) {
      group->isolated = isolate_nodes(graph, group->nodes, types);
      for (const auto& [isolated, whole] : group->isolated.outputs) group->name_of[whole] = isolated;
    }
    groups_.push_back(std::move(group));
  }
}

StepCheck::~StepCheck() {
  pool_.wait();
  for (std::size_t label = 0; label < groups_.size(); ++label) {
    const Group& group = *groups_[label];
    if (group.handle < 0 || group.of_death != parties_[label].deaths) continue;
    if (const auto backend = parties_[label].open()) (*backend)->release(group.handle);
  }
}

const std::vector<CheckedNode>& StepCheck::nodes() {
  pool_.wait();
  return nodes_;
}

void StepCheck::judge(int index, std::int64_t step, const Taken& taken, const std::vector<std::optional<Tensor>>& got,
                      const std::vector<KnownDivergence>& known, char* by_order) {
  const Node& node = graph_.nodes[static_cast<std::size_t>(index)];
  const auto given = pointers_to(taken.inputs), returned = pointers_to(got);
  const int opset = graph_.opset(node.domain);
  NodeJudge judge(node, opset, given);
  judge.leave_out_figures();
  if (*by_order != 0) judge.expect_order();
  if (!taken.outputs.empty()) judge.give_right_outputs(taken.outputs);
  const std::vector<Verdict> verdicts = judge.judge(returned);
  const Verdict* worst = nullptr;
  std::string output;
  for (std::size_t k = 0; k < verdicts.size(); ++k) {
    if (returned[k] == nullptr || (worst != nullptr && verdicts[k].rung <= worst->rung)) continue;
    worst = &verdicts[k];
    output = node.outputs[k];
  }
  *by_order = worst != nullptr && worst->rung == Rung::algorithm;
  const std::lock_guard lock(rows_);
  CheckedNode& row = nodes_[static_cast<std::size_t>(index)];
  ++row.steps;
  if (worst == nullptr) return;
  if (std::any_of(verdicts.begin(), verdicts.end(), [](const Verdict& v) { return v.unproven; })) ++row.unproven;
  if (worst->rung > Rung::rounding && !known.empty() &&
      match(known, {node, opset, given, OutcomeKind::ok, returned, verdicts}) != nullptr) {
    ++row.known;
    return;
  }
  ++row.rungs[static_cast<std::size_t>(worst->rung)];
  if (row.worst_step == 0 || worst->rung > row.worst.rung) {
    row.worst = *worst;
    row.output = output;
    row.worst_step = step;
  }
}

Expected<std::shared_ptr<const StepCheck::Chain>> StepCheck::walk(const TensorMap& inputs) const {
  const auto chain = std::make_shared<Chain>();
  chain->nodes.resize(graph_.nodes.size());
  OPDIFF_TRY(chain->outputs, evaluate_graph(graph_, inputs, [&](const NodeVisit& visit) -> Expected<void> {
               Taken& node = chain->nodes[static_cast<std::size_t>(visit.index)];
               const std::vector<std::string> names = slot_names(*visit.node);
               for (std::size_t k = 0; k < visit.inputs.size(); ++k) {
                 const Tensor* input = visit.inputs[k];
                 node.inputs.push_back(input == nullptr ? std::nullopt : std::optional<Tensor>(*input));
                 if (input != nullptr) chain->tensors[names[k]] = *input;
               }
               const auto absent = [](const Tensor* output) { return output == nullptr; };
               if (std::none_of(visit.outputs.begin(), visit.outputs.end(), absent))
                 for (const Tensor* output : visit.outputs) node.outputs.push_back(*output);
               return {};
             }));
  return chain;
}

void StepCheck::prepare(const TensorMap& inputs) {
  prepared_ = std::async(std::launch::async, [this, inputs] { return walk(inputs); });
}

Expected<TensorMap> StepCheck::check(std::int64_t step, const TensorMap& inputs, Outcome* outcome) {
  *outcome = {};
  OPDIFF_TRY(const auto chain, prepared_.valid() ? prepared_.get() : walk(inputs));  // judged after this returns
  Turn& turn = turns_[static_cast<std::size_t>(steps_ % 2)];
  turn.by_order.resize(graph_.nodes.size(), 0);
  std::vector<std::function<void()>> tasks;
  const auto submit = [&] {
    turn.judged = std::make_shared<std::latch>(std::ssize(tasks));
    for (auto& task : tasks)
      pool_.submit([task = std::move(task), judged = turn.judged] {
        task();
        judged->count_down();
      });
  };
  for (std::size_t label = 0; label < groups_.size(); ++label) {
    Group& group = *groups_[label];
    Party& party = parties_[label];
    if (group.nodes.empty()) continue;
    if (!party.open) {  // the reference is what the others are judged by
      const std::lock_guard lock(rows_);
      for (const int index : group.nodes) {
        CheckedNode& row = nodes_[static_cast<std::size_t>(index)];
        ++row.steps;
        ++row.rungs[static_cast<std::size_t>(Rung::exact)];
        if (row.worst_step == 0) row.worst_step = step;
      }
      continue;
    }
    OPDIFF_TRY(Backend* const backend, party.open());
    if (group.handle < 0 || group.of_death != party.deaths) {
      *outcome = backend->prepare(group.isolated.graph, {.isolated = true}, &group.handle);
      if (!outcome->ok()) group.handle = -1;
      group.of_death = party.deaths;
      if (!group.known) {
        OPDIFF_TRY(group.known, known_divergences(backend->info()));
      }
    }
    TensorMap feeds;
    for (const auto& [name, whole] : group.isolated.inputs) feeds[name] = chain->tensors.at(whole);
    if (outcome->ok()) *outcome = backend->run(group.handle, feeds);
    // What one step has to judge may be left: no core waits for the next.
    if (turn.judged) std::exchange(turn.judged, nullptr)->wait();
    if (!outcome->ok()) {
      if (is_death(outcome->kind)) ++party.deaths;
      outcome->reason =
          fmt::format("{}, nodes one by one: {}: {}", party.spec, to_string(outcome->kind), outcome->reason);
      submit();
      return chain->outputs;
    }
    for (const int index : group.nodes) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(index)];
      if (const auto failure = outcome->node_failures.find(node.id); failure != outcome->node_failures.end()) {
        const std::lock_guard lock(rows_);
        nodes_[static_cast<std::size_t>(index)].failure = failure->second.second;
        continue;
      }
      std::vector<std::optional<Tensor>> got;
      for (const std::string& name : node.outputs) {
        const auto found = group.name_of.find(name);
        const auto value = found == group.name_of.end() ? outcome->outputs.end() : outcome->outputs.find(found->second);
        got.push_back(value == outcome->outputs.end() ? std::nullopt : std::optional<Tensor>(value->second));
      }
      char* const by_order = &turn.by_order[static_cast<std::size_t>(index)];
      tasks.push_back([this, index, step, chain, got = std::move(got), &known = *group.known, by_order] {
        const SerialScope serial;
        judge(index, step, chain->nodes[static_cast<std::size_t>(index)], got, known, by_order);
      });
    }
  }
  submit();
  ++steps_;
  return chain->outputs;
}

}  // namespace opdiff
