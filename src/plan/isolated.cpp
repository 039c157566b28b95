#include "plan/isolated.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "ops/meta_operator.h"
#include "plan/profile.h"
#include "plan/thread_pool.h"
#include "plan/whole_model.h"

namespace opdiff {
namespace {

// A node of the batch, with its tensors held (they share their bytes with the chain's).
struct Waiting {
  int index = 0;
  std::vector<std::optional<Tensor>> inputs;
  std::vector<Tensor> outputs;
  int same_as = -1;  // place in the batch whose run serves this node too

  NodeTensors view() const {
    NodeTensors node;
    node.index = index;
    for (const auto& input : inputs) node.inputs.push_back(input ? &*input : nullptr);
    for (const auto& output : outputs) node.outputs.push_back(&output);
    return node;
  }
};

// What one backend gave for one node.
struct Returned {
  OutcomeKind outcome = OutcomeKind::ok;
  std::string reason;
  std::vector<std::optional<Tensor>> outputs;
  NodeCost cost;
};

struct Batch {
  std::vector<Waiting> nodes;
  std::size_t bytes = 0;
};

class NodeCheck {
 public:
  NodeCheck(const Graph& graph, const std::vector<BackendSource>& backends, const CompareOptions& options,
            Comparison* comparison)
      : graph_(graph), backends_(backends), options_(options), comparison_(comparison), pool_(options.threads) {}

  Expected<TensorMap> run(const TensorMap& inputs) {
    for (const Node& node : graph_.nodes) {
      NodeResult result;
      result.id = node.id;
      result.op = node.op;
      result.backward = node.domain == kGradientDomain;
      result.has_reference = has_reference(node, graph_.opset(node.domain));
      if (!result.has_reference) comparison_->unproven.push_back(node.id);
      comparison_->nodes.push_back(std::move(result));
    }
    const auto visit = [&](const NodeVisit& visit) -> Expected<void> {
      if (options_.stop()) return make_error("interrupted");
      add(visit);
      return batch_.bytes >= options_.batch_bytes ? flush() : Expected<void>{};
    };
    Expected<TensorMap> outputs = evaluate_graph(graph_, inputs, visit, foreign_evaluator(graph_, backends_));
    Expected<void> flushed;
    if (!options_.stop()) flushed = flush();  // when the chain broke, too: what was met before is judged
    pool_.wait();
    if (options_.stop()) {
      comparison_->interrupted = true;
      return TensorMap{};
    }
    if (outputs && !flushed) return tl::unexpected<Error>(flushed.error());
    return outputs;
  }

 private:
  void add(const NodeVisit& visit) {
    Waiting waiting;
    waiting.index = visit.index;
    for (const Tensor* input : visit.inputs) {
      waiting.inputs.push_back(input == nullptr ? std::nullopt : std::optional<Tensor>(*input));
      if (input != nullptr) batch_.bytes += input->byte_size();
    }
    for (const Tensor* output : visit.outputs) {
      waiting.outputs.push_back(output == nullptr ? Tensor() : *output);
      batch_.bytes += waiting.outputs.back().byte_size();
    }
    const NodeTensors view = waiting.view();
    for (std::size_t place = 0; place < batch_.nodes.size() && waiting.same_as < 0; ++place) {
      if (batch_.nodes[place].same_as < 0 && identical_case(graph_, batch_.nodes[place].view(), view)) {
        waiting.same_as = static_cast<int>(place);
      }
    }
    batch_.nodes.push_back(std::move(waiting));
  }

  Expected<void> flush() {
    pool_.wait();  // at most one batch is being judged while the next one is gathered
    if (batch_.nodes.empty()) return {};
    auto batch = std::make_shared<const Batch>(std::exchange(batch_, Batch{}));
    std::vector<std::size_t> places;
    for (std::size_t place = 0; place < batch->nodes.size(); ++place) {
      if (batch->nodes[place].same_as < 0) places.push_back(place);
    }
    for (std::size_t b = 0; b < backends_.size(); ++b) {
      if (options_.stop()) return make_error("interrupted");
      OPDIFF_TRY(Backend* const backend, backends_[b]());
      if (known_.size() <= b) {
        OPDIFF_TRY(auto known, known_divergences(backend->info()));
        known_.push_back(std::move(known));
      }
      auto returned = std::make_shared<std::vector<Returned>>(batch->nodes.size());
      std::vector<std::size_t> asked;
      for (const std::size_t place : places) {
        const Node& node = graph_.nodes[static_cast<std::size_t>(batch->nodes[place].index)];
        if (!lacks_gradient(backend->info(), node)) {
          asked.push_back(place);
          continue;
        }
        (*returned)[place].outcome = OutcomeKind::unsupported;
        (*returned)[place].reason = kNoGradients;
      }
      run_places(*backend, *batch, asked, returned.get());
      if (options_.profile) measure_places(*backend, *batch, places, returned.get());
      if (options_.stop()) return make_error("interrupted");  // what was running has been killed: no finding
      for (std::size_t place = 0; place < batch->nodes.size(); ++place) {
        const int same_as = batch->nodes[place].same_as;
        if (same_as >= 0) (*returned)[place] = (*returned)[static_cast<std::size_t>(same_as)];
        const Waiting& waiting = batch->nodes[place];
        NodeOutcome* slot =
            &comparison_->nodes[static_cast<std::size_t>(waiting.index)].backends[comparison_->backends[b].spec];
        pool_.submit([this, batch, returned, place, slot, b] {
          judge(batch->nodes[place], (*returned)[place], known_[b], slot);
        });
      }
      done_ += static_cast<std::int64_t>(batch->nodes.size());
      options_.report("nodes", done_, static_cast<std::int64_t>(graph_.nodes.size() * backends_.size()));
    }
    return {};
  }

  // One graph for all; when it fails as a whole, halves, so that one node that cannot run does not hide the others.
  void run_places(Backend& backend, const Batch& batch, const std::vector<std::size_t>& places,
                  std::vector<Returned>* returned) {
    if (places.empty() || options_.stop()) return;
    std::vector<NodeTensors> nodes;
    for (const std::size_t place : places) nodes.push_back(batch.nodes[place].view());
    const NodeBatch sent = batch_of(graph_, nodes);
    Outcome outcome = run_once(backend, sent.isolated.graph, sent.feeds, {.isolated = true, .profile = true});
    if (!outcome.ok() && places.size() > 1) {
      const auto middle = places.begin() + static_cast<std::ptrdiff_t>(places.size() / 2);
      run_places(backend, batch, {places.begin(), middle}, returned);
      run_places(backend, batch, {middle, places.end()}, returned);
      return;
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      take(outcome, graph_.nodes[static_cast<std::size_t>(nodes[i].index)], sent, i, &(*returned)[places[i]]);
      NodeCost& cost = (*returned)[places[i]].cost;
      if (places.size() == 1 && !cost.wall_ms && !outcome.wall_ms.empty()) cost.wall_ms = outcome.wall_ms.back();
    }
  }

  void measure_places(Backend& backend, const Batch& batch, const std::vector<std::size_t>& places,
                      std::vector<Returned>* returned) {
    pool_.wait();  // judging would take the processor from what is timed
    for (const std::size_t place : places) {
      if (options_.stop()) return;
      Returned& node = (*returned)[place];
      if (node.outcome == OutcomeKind::ok) node.cost = measure_node(backend, graph_, batch.nodes[place].view());
    }
  }

  static void take(const Outcome& outcome, const Node& node, const NodeBatch& sent, std::size_t place,
                   Returned* returned) {
    const std::string& id = node.id;
    returned->outcome = outcome.kind;
    returned->reason = outcome.reason;
    const auto failure = outcome.node_failures.find(id);
    if (failure != outcome.node_failures.end()) {
      returned->outcome = failure->second.first;
      returned->reason = failure->second.second;
    }
    if (const auto time = outcome.node_ms.find(id); time != outcome.node_ms.end())
      returned->cost.wall_ms = time->second;
    if (returned->outcome != OutcomeKind::ok) return;
    for (std::size_t slot = 0; slot < node.outputs.size(); ++slot) {
      const std::string name = sent.output_name(place, slot);
      const auto found = outcome.outputs.find(name);
      returned->outputs.push_back(found == outcome.outputs.end() ? std::nullopt : std::optional<Tensor>(found->second));
      if (!name.empty() && found == outcome.outputs.end()) {
        returned->outcome = OutcomeKind::error;
        returned->reason = fmt::format("the run of node '{}' did not return its output '{}'", id, node.outputs[slot]);
      }
    }
  }

  void judge(const Waiting& waiting, const Returned& returned, std::span<const KnownDivergence> known,
             NodeOutcome* result) const {
    const Node& node = graph_.nodes[static_cast<std::size_t>(waiting.index)];
    result->outcome = returned.outcome;
    result->reason = returned.reason;
    result->wall_ms = returned.cost.wall_ms;
    result->peak_bytes = returned.cost.peak_bytes;
    const NodeTensors view = waiting.view();
    const int opset = graph_.opset(node.domain);
    const auto look_up = [&](std::span<const Tensor* const> got, std::span<const Verdict> verdicts) {
      if (const KnownDivergence* entry = match(known, {node, opset, view.inputs, returned.outcome, got, verdicts}))
        result->known = *entry;
    };
    if (returned.outcome != OutcomeKind::ok) return look_up({}, {});
    std::vector<const Tensor*> got;
    for (const auto& output : returned.outputs) got.push_back(output ? &*output : nullptr);
    const std::vector<Verdict> verdicts = judge_node(node, opset, view.inputs, got);
    look_up(got, verdicts);
    for (std::size_t slot = 0; slot < node.outputs.size() && slot < verdicts.size(); ++slot) {
      if (got[slot] == nullptr) continue;
      Verdict verdict = verdicts[slot];
      double error = verdict.figures.max_absolute;
      if (!comparison_->nodes[static_cast<std::size_t>(waiting.index)].has_reference) {
        error = largest_difference(*got[slot], waiting.outputs[slot]);
        verdict.unproven = true;
        verdict.figures.max_absolute = error;
        verdict.note = fmt::format("no reference: differs by {:.3g} from the first backend that computes it", error);
      }
      result->own_error = std::max(result->own_error, error);
      result->outputs[node.outputs[slot]] = std::move(verdict);
    }
  }

  const Graph& graph_;
  const std::vector<BackendSource>& backends_;
  const CompareOptions& options_;
  Comparison* const comparison_;
  Batch batch_;
  std::int64_t done_ = 0;
  std::deque<std::vector<KnownDivergence>> known_;  // by backend; tasks read one while the next is loaded
  ThreadPool pool_;                                 // last: its tasks use the rest
};

bool same_attribute(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& left) {
        using T = std::decay_t<decltype(left)>;
        const T& right = std::get<T>(b);
        if constexpr (std::is_same_v<T, Tensor>) {
          return left.bit_equal(right);
        } else {
          return left == right;  // subgraphs: only the same object
        }
      },
      a);
}

}  // namespace

bool identical_case(const Graph& graph, const NodeTensors& a, const NodeTensors& b) {
  const Node& left = graph.nodes[static_cast<std::size_t>(a.index)];
  const Node& right = graph.nodes[static_cast<std::size_t>(b.index)];
  if (left.op != right.op || left.domain != right.domain || left.outputs.size() != right.outputs.size() ||
      a.inputs.size() != b.inputs.size() || left.attributes.size() != right.attributes.size()) {
    return false;
  }
  for (auto l = left.attributes.begin(), r = right.attributes.begin(); l != left.attributes.end(); ++l, ++r) {
    if (l->first != r->first || !same_attribute(l->second, r->second)) return false;
  }
  for (std::size_t slot = 0; slot < left.outputs.size(); ++slot) {
    if (left.outputs[slot].empty() != right.outputs[slot].empty()) return false;
  }
  const std::vector<std::string> left_slots = slot_names(left), right_slots = slot_names(right);
  for (std::size_t slot = 0; slot < a.inputs.size(); ++slot) {
    if ((a.inputs[slot] == nullptr) != (b.inputs[slot] == nullptr)) return false;
    if (a.inputs[slot] == nullptr) continue;
    const bool left_constant = graph.initialisers.count(left_slots[slot]) > 0;
    if (left_constant != (graph.initialisers.count(right_slots[slot]) > 0)) return false;
    const Tensor& x = *a.inputs[slot];
    const Tensor& y = *b.inputs[slot];
    if (x.dtype() != y.dtype() || x.shape() != y.shape() || !x.bit_equal(y)) return false;
  }
  return true;
}

Expected<TensorMap> check_nodes(const Graph& graph, const TensorMap& inputs, const std::vector<BackendSource>& backends,
                                const CompareOptions& options, Comparison* comparison) {
  return NodeCheck(graph, backends, options, comparison).run(inputs);
}

}  // namespace opdiff
