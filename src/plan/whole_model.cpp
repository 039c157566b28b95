#include "plan/whole_model.h"

#include <cmath>
#include <optional>

namespace opdiff {
namespace {

bool same_bits(const TensorMap& a, const TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto found = b.find(name);
    if (found == b.end() || tensor.dtype() != found->second.dtype() || tensor.shape() != found->second.shape() ||
        !tensor.bit_equal(found->second)) {
      return false;
    }
  }
  return true;
}

ContractResult check_contract(const TensorMap& got, const TensorMap& reference, double rtol, double atol) {
  ContractResult result;
  for (const auto& [name, expected] : reference) {
    result.elements += expected.size();
    const auto found = got.find(name);
    if (found == got.end() || found->second.shape() != expected.shape()) {
      result.broken += expected.size();
      continue;
    }
    for (std::int64_t i = 0; i < expected.size(); ++i) {
      const double x = found->second.at(i), y = expected.at(i);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      if (!(std::abs(x - y) <= atol + rtol * std::abs(y))) ++result.broken;
    }
  }
  return result;
}

// One node's graph prepared once and run twice: on the chained tensors and on the reference's.
class ChainedWalk {
 public:
  ChainedWalk(const Graph& graph, const TensorMap& inputs, Backend& backend, const CompareOptions& options,
              Comparison* comparison)
      : graph_(graph), backend_(backend), options_(options), comparison_(comparison), alive_(inputs) {
    for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
      for (const std::string& input : used_names(graph.nodes[index])) last_use_[input] = static_cast<int>(index);
    }
    for (const ValueInfo& output : graph.outputs) last_use_[output.name] = static_cast<int>(graph.nodes.size());
  }

  Expected<void> visit(const NodeVisit& visit) {
    if (options_.stop()) return make_error("interrupted");
    if (!failure_.ok()) return {};
    run_node(visit);
    for (auto tensor = alive_.begin(); tensor != alive_.end();) {
      const auto use = last_use_.find(tensor->first);
      tensor = use == last_use_.end() || use->second <= visit.index ? alive_.erase(tensor) : std::next(tensor);
    }
    options_.report("chained nodes on " + backend_.info().spec, visit.index + 1,
                    static_cast<std::int64_t>(graph_.nodes.size()));
    return {};
  }

  Outcome outcome() const {
    if (!failure_.ok()) return failure_;
    Outcome result;
    for (const ValueInfo& output : graph_.outputs) {
      if (const auto found = alive_.find(output.name); found != alive_.end()) {
        result.outputs[output.name] = found->second;
      } else if (const auto constant = graph_.initialisers.find(output.name); constant != graph_.initialisers.end()) {
        result.outputs[output.name] = constant->second;
      }
    }
    return result;
  }

 private:
  void run_node(const NodeVisit& visit) {
    const Node& node = *visit.node;
    NodeTensors chained, reference;
    chained.index = reference.index = visit.index;
    chained.inputs = reference.inputs = visit.inputs;
    chained.outputs = reference.outputs = visit.outputs;
    bool own_types = true;
    const std::vector<std::string> slots = slot_names(node);
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      const auto found = alive_.find(slots[slot]);
      if (found == alive_.end()) continue;  // an initialiser, or absent
      own_types = own_types && found->second.shape() == reference.inputs[slot]->shape() &&
                  found->second.dtype() == reference.inputs[slot]->dtype();
      chained.inputs[slot] = &found->second;
    }
    if (!own_types) chained.outputs.assign(chained.outputs.size(), nullptr);
    const NodeBatch batch = batch_of(graph_, {chained});
    int handle = 0;
    Outcome prepared = backend_.prepare(batch.isolated.graph, {.isolated = true}, &handle);
    if (!prepared.ok()) return fail(node, std::move(prepared));
    Outcome own = backend_.run(handle, batch.feeds);
    std::optional<Outcome> on_reference;
    if (own.ok() && own_types) on_reference = backend_.run(handle, batch_of(graph_, {reference}).feeds);
    backend_.release(handle);
    if (!own.ok()) return fail(node, std::move(own));
    if (!own.node_failures.empty()) {
      const auto& [kind, reason] = own.node_failures.begin()->second;
      return fail(node, Outcome::failure(kind, reason));
    }
    compare(visit, batch, own, on_reference);
    for (std::size_t slot = 0; slot < node.outputs.size(); ++slot) {
      const auto found = own.outputs.find(batch.output_name(0, slot));
      if (found != own.outputs.end()) alive_[node.outputs[slot]] = std::move(found->second);
    }
  }

  void compare(const NodeVisit& visit, const NodeBatch& batch, const Outcome& own,
               const std::optional<Outcome>& on_reference) {
    NodeResult& result = comparison_->nodes[static_cast<std::size_t>(visit.index)];
    const auto entry = result.backends.find(backend_.info().spec);
    if (entry == result.backends.end()) return;
    double total = 0, inherited = 0;
    for (std::size_t slot = 0; slot < visit.node->outputs.size(); ++slot) {
      const std::string name = batch.output_name(0, slot);
      const auto found = own.outputs.find(name);
      if (name.empty() || found == own.outputs.end()) continue;
      if (visit.outputs[slot] != nullptr) {
        total = std::max(total, largest_difference(found->second, *visit.outputs[slot]));
      }
      if (!on_reference || !on_reference->ok()) continue;
      const auto other = on_reference->outputs.find(name);
      if (other != on_reference->outputs.end()) {
        inherited = std::max(inherited, largest_difference(found->second, other->second));
      }
    }
    entry->second.total_error = total;
    if (on_reference && on_reference->ok()) entry->second.inherited_error = inherited;
  }

  void fail(const Node& node, Outcome outcome) {
    failure_ = Outcome::failure(outcome.kind, fmt::format("node '{}': {}", node.id, outcome.reason));
  }

  const Graph& graph_;
  Backend& backend_;
  const CompareOptions& options_;
  Comparison* const comparison_;
  TensorMap alive_;
  std::map<std::string, int> last_use_;
  Outcome failure_;
};

}  // namespace

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return INFINITY;
  double largest = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = a.at(i), y = b.at(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double difference = std::abs(x - y);
    if (std::isnan(difference)) return INFINITY;
    largest = std::max(largest, difference);
  }
  return largest;
}

WholeRun run_whole(Backend& backend, const Graph& graph, const TensorMap& inputs, const CompareOptions& options) {
  WholeRun result;
  int handle = 0;
  result.outcome = backend.prepare(graph, {.training = options.training ? &*options.training : nullptr}, &handle);
  if (!result.outcome.ok()) return result;
  result.outcome = backend.run(handle, inputs);
  if (result.outcome.ok()) {
    Outcome again = backend.run(handle, inputs);
    // The first run pays for what is made lazily.
    if (again.ok() && !again.wall_ms.empty()) result.outcome.wall_ms = again.wall_ms;
    if (!again.ok() || !same_bits(result.outcome.outputs, again.outputs)) result.again = std::move(again);
  }
  backend.release(handle);
  return result;
}

WholeModelResult read_whole(const WholeRun& run, const TensorMap& reference, const FloorSource& floor,
                            const CompareOptions& options) {
  WholeModelResult result;
  result.reading = read_outputs(run.outcome, reference, floor, &result.outputs);
  if (run.again) {
    // The worse of two runs that differ is what the model is judged by.
    std::map<std::string, FloorComparison> outputs;
    const Reading again = read_outputs(*run.again, reference, floor, &outputs);
    if (again.outcome != OutcomeKind::ok || (again.wrong && !result.reading.wrong) ||
        (again.wrong == result.reading.wrong && again.error() > result.reading.error())) {
      result.reading = again;
      result.outputs = std::move(outputs);
    }
    result.reading.repeats_differ = true;
  }
  if (!run.outcome.wall_ms.empty()) result.wall_ms = run.outcome.wall_ms.back();
  if (result.reading.outcome == OutcomeKind::ok && (options.rtol || options.atol)) {
    result.contract =
        check_contract(run.outcome.outputs, reference, options.rtol.value_or(0), options.atol.value_or(0));
  }
  if (reference.size() == 1 && result.reading.outcome == OutcomeKind::ok && !result.reading.wrong_shape) {
    const auto& [name, expected] = *reference.begin();
    const Tensor& got = run.outcome.outputs.at(name);
    if (got.dtype() == expected.dtype()) {
      const std::vector<double>* noise = nullptr;
      if (!got.bit_equal(expected)) {
        if (const Expected<const Floor*> floors = floor()) {
          if (const auto entry = (*floors)->find(name); entry != (*floors)->end()) noise = &entry->second;
        }
      }
      result.classifier = classify(got, expected, noise, options.labels ? &*options.labels : nullptr);
    }
  }
  return result;
}

Reading check_chained(const Graph& graph, const TensorMap& inputs, Backend& backend, const ForeignEvaluator& foreign,
                      const TensorMap& reference, const FloorSource& floor, const CompareOptions& options,
                      Comparison* comparison) {
  ChainedWalk walk(graph, inputs, backend, options, comparison);
  const Expected<TensorMap> outputs =
      evaluate_graph(graph, inputs, [&](const NodeVisit& visit) { return walk.visit(visit); }, foreign);
  if (!outputs) return read_outputs(Outcome::failure(OutcomeKind::error, outputs.error().message), reference, floor);
  return read_outputs(walk.outcome(), reference, floor);
}

}  // namespace opdiff
