#include "plan/operator_check.h"

#include <algorithm>
#include <set>

#include "judge/attack.h"
#include "judge/judge.h"
#include "numerics/parallel.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

// Samples per graph: enough to spread the cost of a session, few enough that one bad sample takes few with it.
constexpr std::size_t kBatch = 50;

ValueInfo describe(const std::string& name, const TensorType& type) {
  ValueInfo info{name, type.dtype, std::vector<Dimension>()};
  for (const std::int64_t d : *type.shape) info.shape->push_back({d, ""});
  return info;
}

// Adds one sample to a graph; its tensors are named PREFIX + their own name.
void add_sample(Graph& graph, TensorMap& feeds, const Sample& sample, const std::string& prefix) {
  Node node = sample.node;
  node.id = prefix.empty() ? node.id : prefix;
  const std::vector<const Tensor*> inputs = sample.pointers();
  const auto types = infer_call(*find_operator(node.domain, node.op), Call(sample.node, sample.opset, inputs));
  OPDIFF_CHECK(types.has_value());
  // A node whose inputs are all weights would be folded away before it runs.
  const bool all_weights =
      !inputs.empty() && std::all_of(sample.initialiser.begin(), sample.initialiser.end(), [](bool w) { return w; });
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    if (!sample.inputs[k]) continue;
    const std::string name = prefix + node.inputs[k];
    node.inputs[k] = name;
    if (sample.initialiser[k] && !(all_weights && k == 0)) {
      graph.initialisers[name] = *sample.inputs[k];
    } else if (feeds.emplace(name, *sample.inputs[k]).second) {
      graph.inputs.push_back(describe(name, {sample.inputs[k]->dtype(), sample.inputs[k]->shape()}));
    }
  }
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k].empty()) continue;
    node.outputs[k] = prefix + node.outputs[k];
    graph.outputs.push_back(describe(node.outputs[k], (*types)[k]));
  }
  graph.nodes.push_back(std::move(node));
}

void set_opset(Graph& graph, const Sample& sample) {
  graph.opsets[""] = sample.opset;
  if (!sample.node.domain.empty()) graph.opsets[sample.node.domain] = sample.opset;
}

std::string prefix_of(const CheckedCase& c) { return "case" + std::to_string(c.index) + "_"; }

void look_up(CheckedCase& c, std::span<const Tensor* const> got, std::span<const KnownDivergence> known) {
  const auto inputs = c.sample.pointers();
  c.known = match(known, {c.sample.node, c.sample.opset, inputs, c.outcome, got, c.verdicts});
}

// Runs cases [first, last) of `batch` as one graph; a failure of the whole is narrowed down by halves.
void run_batch(Backend& backend, std::vector<CheckedCase*> batch, std::span<const KnownDivergence> known) {
  if (batch.empty()) return;
  Graph graph;
  TensorMap feeds;
  graph.name = "samples";
  set_opset(graph, batch.front()->sample);
  for (const CheckedCase* c : batch) add_sample(graph, feeds, c->sample, prefix_of(*c));
  const Outcome outcome = run_once(backend, graph, feeds, {.isolated = true});
  if (!outcome.ok()) {
    if (batch.size() == 1) {
      batch.front()->outcome = outcome.kind;
      batch.front()->reason = outcome.reason;
      look_up(*batch.front(), {}, known);
      return;
    }
    const auto middle = batch.begin() + static_cast<std::ptrdiff_t>(batch.size() / 2);
    run_batch(backend, {batch.begin(), middle}, known);
    run_batch(backend, {middle, batch.end()}, known);
    return;
  }
  parallel_for(static_cast<std::int64_t>(batch.size()), [&](std::int64_t i) {
    CheckedCase& c = *batch[static_cast<std::size_t>(i)];
    const std::string prefix = prefix_of(c);
    if (const auto failure = outcome.node_failures.find(prefix); failure != outcome.node_failures.end()) {
      c.outcome = failure->second.first;
      c.reason = failure->second.second;
      look_up(c, {}, known);
      return;
    }
    std::vector<const Tensor*> got;
    for (const std::string& name : c.sample.node.outputs) {
      const auto found = outcome.outputs.find(prefix + name);
      got.push_back(name.empty() || found == outcome.outputs.end() ? nullptr : &found->second);
      if (!name.empty() && !got.back()) {
        c.outcome = OutcomeKind::error;
        c.reason = fmt::format("output '{}' is missing in the reply", name);
        return;
      }
    }
    c.verdicts = judge_node(c.sample.node, c.sample.opset, c.sample.pointers(), got);
    for (const Verdict& v : c.verdicts) c.rung = std::max(c.rung, v.rung);
    look_up(c, got, known);
  });
}

void count(OperatorCheck& total, const CheckedCase& c) {
  if (c.outcome == OutcomeKind::unsupported) {
    ++total.unsupported;
    ++total.reasons[std::string(to_string(c.outcome)) + ": " + c.reason.substr(0, 160)];
    return;
  }
  if (c.known) {
    ++total.known;
    ++total.known_reasons[fmt::format("{} ({})", c.known->reason, c.known->link)];
    total.cases += c.outcome == OutcomeKind::ok;
    return;
  }
  if (c.outcome != OutcomeKind::ok) {
    ++(c.outcome == OutcomeKind::error ? total.errors : total.deaths);
    ++total.reasons[std::string(to_string(c.outcome)) + ": " + c.reason.substr(0, 160)];
    return;
  }
  ++total.cases;
  ++total.rungs[static_cast<std::size_t>(c.rung)];
  std::set<std::string> explanations;  // a case counts once, whatever its outputs
  for (const Verdict& v : c.verdicts) {
    total.unproven += v.unproven;
    if (v.rung > Rung::rounding)
      explanations.insert(fmt::format("{}{}{}", to_string(v.rung),
                                      v.rung >= Rung::unlikely || v.explanation.empty() ? "" : ": ",
                                      v.rung >= Rung::unlikely ? "" : v.explanation));
    if (v.rung != Rung::rounding && v.rung != Rung::exact) continue;
    total.z_rms = std::max(total.z_rms, v.z_rms);
    total.z_max = std::max(total.z_max, v.z_max);
    if (v.excess < kInfinity) total.excess = std::max(total.excess, v.excess);
  }
  for (const std::string& what : explanations) ++total.explanations[what];
}

}  // namespace

bool offers(const BackendInfo& info, const MetaOperator& op, DType dtype) {
  if (op.domain == kGradientDomain && !info.gradient) return false;
  const bool has_op = std::any_of(info.operators.begin(), info.operators.end(),
                                  [&](const std::string& o) { return o == "*" || o == op.name; });
  return has_op && std::find(info.dtypes.begin(), info.dtypes.end(), dtype) != info.dtypes.end();
}

Graph sample_graph(const Sample& sample) {
  Graph graph;
  TensorMap feeds;
  graph.name = sample.node.op;
  set_opset(graph, sample);
  add_sample(graph, feeds, sample, "");
  return graph;
}

OperatorCheck check_operator(const MetaOperator& op, Backend& backend, const CheckOptions& options,
                             const std::function<void(const CheckedCase&)>& visit, const std::atomic<bool>* stop) {
  OperatorCheck total{display_name(op), backend.info().spec, options.dtype};
  // Samples come in windows, so that memory stays small; within one, those of one opset make a graph.
  constexpr int kWindow = 400;
  for (int start = 0; start < options.count && !(stop && *stop); start += kWindow) {
    std::vector<CheckedCase> cases(static_cast<std::size_t>(std::min(kWindow, options.count - start)));
    std::map<int, std::vector<CheckedCase*>> by_opset;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      cases[i].index = options.first + static_cast<std::uint64_t>(start) + i;
      cases[i].sample = make_sample(op, options.dtype, options.seed, cases[i].index);
      std::vector<CheckedCase*>& batch = by_opset[cases[i].sample.opset];
      batch.push_back(&cases[i]);
      if (batch.size() == kBatch) {
        run_batch(backend, batch, options.known);
        batch.clear();
      }
      if (stop && *stop) break;
    }
    for (const auto& [opset, batch] : by_opset) run_batch(backend, batch, options.known);
    for (const CheckedCase& c : cases) {
      if (c.sample.node.op.empty()) continue;
      count(total, c);
      if (visit) visit(c);
    }
  }
  return total;
}

}  // namespace opdiff
