#include "locate/compare.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "plan/isolated.h"
#include "plan/probe.h"
#include "plan/watched.h"
#include "plan/whole_model.h"

namespace opdiff {
namespace {

class Comparer {
 public:
  Comparer(const CompareRequest& request, const CompareOptions& options) : request_(request), options_(options) {}

  Expected<CompareResult> run() {
    std::vector<BackendSource> sources;
    for (std::size_t i = 0; i < request_.backends.size(); ++i) {
      BackendInfo info;
      info.spec = request_.backends[i].spec;
      comparison().backends.push_back(info);
      sources.push_back([this, i] { return open(i); });
    }
    whole_runs_.resize(request_.backends.size());
    watched_.resize(request_.backends.size());
    Expected<TensorMap> checked = check_nodes(request_.graph, request_.inputs, sources, options_, &comparison());
    if (!checked) {
      if (comparison().deaths.empty()) return tl::unexpected<Error>(checked.error());
      comparison().stopped = checked.error().message;
      return std::move(result_);
    }
    reference_ = *std::move(checked);
    if (comparison().interrupted) return std::move(result_);

    ReferenceChain chain(request_.graph, request_.inputs, foreign_evaluator(request_.graph, sources));
    foreign_ = chain.foreign();
    const ModelUnderTest model{request_.graph, request_.inputs, chain, reference_, [this] { return floor(); },
                               options_};
    for (std::size_t i = 0; i < request_.backends.size(); ++i) {
      OPDIFF_TRY(Backend* const backend, open(i));
      // One that died at its start has come up since, perhaps.
      comparison().backends[i] = backend->info();
      comparison().backends[i].spec = request_.backends[i].spec;
      comparison().whole_model[request_.backends[i].spec] =
          read_whole(*whole_runs_[i], reference_, model.floor, options_);
    }
    for (std::size_t i = 0; i < request_.backends.size() && !options_.stop(); ++i) locate_on(i, model);
    if (!request_.bindings.empty() && !options_.stop()) run_bindings(model);
    comparison().interrupted = options_.stop();
    return std::move(result_);
  }

 private:
  Comparison& comparison() { return result_.comparison; }

  // The first time, the whole model is run as well: the framework has just come up.
  Expected<Backend*> open(std::size_t i) {
    OPDIFF_TRY(Backend* const opened, request_.backends[i].open());
    if (!watched_[i] || &watched_[i]->base() != opened) {
      watched_[i] = std::make_unique<WatchedBackend>(*opened, note_for(request_.backends[i].spec));
    }
    Backend* const backend = watched_[i].get();
    if (!whole_runs_[i]) {
      comparison().backends[i] = backend->info();
      comparison().backends[i].spec = request_.backends[i].spec;
      options_.report("whole model on " + request_.backends[i].spec, 0, 0);
      whole_runs_[i] = run_whole(*backend, request_.graph, request_.inputs, options_);
    }
    return backend;
  }

  // Noise floors ask from several threads.
  WatchedBackend::Note note_for(const std::string& spec) {
    return [this, spec](OutcomeKind kind, const std::string& reason) {
      if (options_.stop()) return;  // killed by us
      const std::lock_guard lock(deaths_mutex_);
      comparison().deaths.push_back({spec, kind, reason});
    };
  }

  Expected<const Floor*> floor() {
    if (!floor_) {
      options_.report("noise floor", 0, 0);
      floor_ = noise_floor(request_.graph, request_.inputs, kNoiseRuns, options_.seed, foreign_);
    }
    if (!*floor_) return tl::unexpected<Error>(floor_->error());
    return &**floor_;
  }

  std::vector<const NodeOutcome*> outcomes_on(const std::string& spec) {
    std::vector<const NodeOutcome*> outcomes;
    for (const NodeResult& node : comparison().nodes) {
      const auto found = node.backends.find(spec);
      outcomes.push_back(found == node.backends.end() ? nullptr : &found->second);
    }
    return outcomes;
  }

  void locate_on(std::size_t i, const ModelUnderTest& model) {
    const BackendUnderTest& under_test = request_.backends[i];
    const Expected<Backend*> opened = open(i);
    if (!opened) return;  // it was open before: a restart failed, and the outcomes say so
    Backend& backend = **opened;
    WholeModelResult& whole = comparison().whole_model.at(under_test.spec);
    LocaliseInput input;
    input.graph = &request_.graph;
    input.backend = under_test.spec;
    input.alone = outcomes_on(under_test.spec);
    input.whole = whole.reading;
    input.most_in_full = options_.localise;
    const bool whole_off = whole.reading.wrong || (whole.reading.outcome != OutcomeKind::ok &&
                                                   whole.reading.outcome != OutcomeKind::unsupported);
    const bool node_off = std::any_of(input.alone.begin(), input.alone.end(), [](const NodeOutcome* outcome) {
      return outcome != nullptr && outcome->outcome != OutcomeKind::unsupported &&
             (!outcome->ok() || outcome->rung() >= Rung::unlikely);
    });
    if (!whole_off && !node_off) return;
    options_.report("locating on " + under_test.spec, 0, 0);
    if (whole.reading.wrong && !node_off && by_named_algorithms(i, input.alone, model, backend)) return;
    if (whole.reading.wrong) {
      whole.chained = check_chained(request_.graph, request_.inputs, backend, foreign_, reference_, model.floor,
                                    options_, &comparison());
    }
    VariantOpener without;
    if (under_test.without) {
      without = [&](const std::vector<std::string>& passes) -> Expected<std::unique_ptr<Backend>> {
        OPDIFF_TRY(auto variant, under_test.without(passes));
        return std::make_unique<WatchedBackend>(std::move(variant), note_for(under_test.spec));
      };
    }
    BackendProbe probe(model, backend, without);
    LocaliseResult located = localise(input, probes_of(probe, backend, under_test));
    whole.explanation = located.explanation;
    for (const int node : located.failing_alone) add(&result_.failing, node, under_test.spec);
    for (const int node : located.unconfirmed) add(&result_.unconfirmed, node, under_test.spec);
    for (Culprit& culprit : located.culprits) {
      if (auto captured = probe.capture(culprit.indices)) culprit.captured = *std::move(captured);
      result_.culprits.push_back(std::move(culprit));
    }
  }

  // A node may compute by an algorithm or a convention with a name (the unbiased variance in running statistics),
  // proven alone; the noise floor is that of the definition. Then the whole is held against the reference with these
  // nodes as the backend computes them: if that is all, it is right, and the explanation says what it was held against.
  bool by_named_algorithms(std::size_t i, const std::vector<const NodeOutcome*>& alone, const ModelUnderTest& model,
                           Backend& backend) {
    std::vector<int> labels;
    std::string names;
    for (std::size_t node = 0; node < alone.size(); ++node) {
      const Verdict* verdict = alone[node] && !alone[node]->known ? alone[node]->worst() : nullptr;
      const bool named = verdict && verdict->rung > Rung::rounding && verdict->rung < Rung::unlikely;
      labels.push_back(named ? 1 : 0);
      if (named && names.size() < 120)
        names +=
            fmt::format("{}{} ({})", names.empty() ? "" : ", ", request_.graph.nodes[node].id, verdict->explanation);
    }
    if (names.empty() || !model.chain.tensors({})) return false;
    std::vector<CutPart> parts;
    for (NodeSet& nodes : partition_into_convex_segments(request_.graph, labels)) {
      const bool named = label_of(request_.graph, nodes, labels) == 1;
      parts.push_back({std::move(nodes), named ? backend_runner(backend) : reference_runner(foreign_)});
    }
    const Outcome mixed = run_cut(request_.graph, request_.inputs, parts, model.chain.types());
    if (!mixed.ok()) return false;
    const WholeModelResult again = read_whole(*whole_runs_[i], mixed.outputs, model.floor, options_);
    if (again.reading.wrong || again.reading.outcome != OutcomeKind::ok) return false;
    WholeModelResult& whole = comparison().whole_model.at(request_.backends[i].spec);
    whole.reading = again.reading;
    whole.outputs = again.outputs;
    whole.explanation = "held against the reference with these nodes as the backend computes them: " + names;
    return true;
  }

  void add(std::vector<CompareResult::NodeOnBackend>* list, int node, const std::string& spec) const {
    list->push_back({request_.graph.nodes[static_cast<std::size_t>(node)].id, spec});
  }

  Probes probes_of(BackendProbe& probe, const Backend& backend, const BackendUnderTest& under_test) const {
    Probes probes;
    probes.segment = [&probe](const NodeSet& nodes) { return probe.segment(nodes); };
    probes.unfused = [&probe](const NodeSet& nodes) { return probe.unfused(nodes); };
    probes.fused_against_unfused = [&probe](const NodeSet& nodes) { return probe.fused_against_unfused(nodes); };
    probes.assembled = [&probe](const Assignment& assignment) { return probe.assembled(assignment); };
    probes.alone = [&probe](int node, NodeInputs inputs, Executor executor, int draw) {
      return probe.alone(node, inputs, executor, draw);
    };
    probes.unsteady = [&probe](int node) { return probe.unsteady(node); };
    probes.rewritten = [&probe](int node) { return probe.rewritten(node); };
    if (under_test.without) {
      probes.without_passes = [&probe](const NodeSet& nodes, const std::vector<std::string>& disabled) {
        return probe.without_passes(nodes, disabled);
      };
      probes.passes = backend.info().passes;
    }
    probes.interrupted = [this] { return options_.stop(); };
    return probes;
  }

  void run_bindings(const ModelUnderTest& model) {
    std::vector<int> labels(request_.graph.nodes.size(), 0);
    std::string name = request_.backends.front().spec + " with";
    for (const auto& [what, backend] : request_.bindings) {
      name += fmt::format(" {}={}", what, request_.backends[backend].spec);
      for (std::size_t node = 0; node < labels.size(); ++node) {
        const Node& candidate = request_.graph.nodes[node];
        if (candidate.id == what || candidate.op == what) labels[node] = static_cast<int>(backend);
      }
    }
    std::vector<CutPart> parts;
    for (NodeSet& nodes : partition_into_convex_segments(request_.graph, labels)) {
      const Expected<Backend*> backend = open(static_cast<std::size_t>(label_of(request_.graph, nodes, labels)));
      if (!backend) return;
      parts.push_back({std::move(nodes), backend_runner(**backend)});
    }
    WholeRun run;
    const Expected<TensorMap> walked = model.chain.tensors({});  // completes the types
    run.outcome = walked ? run_cut(request_.graph, request_.inputs, parts, model.chain.types())
                         : Outcome::failure(OutcomeKind::error, walked.error().message);
    comparison().whole_model[name] = read_whole(run, reference_, model.floor, options_);
  }

  const CompareRequest& request_;
  const CompareOptions& options_;
  CompareResult result_;
  std::vector<std::optional<WholeRun>> whole_runs_;
  std::vector<std::unique_ptr<WatchedBackend>> watched_;
  std::mutex deaths_mutex_;
  TensorMap reference_;
  ForeignEvaluator foreign_;
  std::optional<Expected<Floor>> floor_;
};

}  // namespace

Expected<CompareResult> compare_model(const CompareRequest& request, const CompareOptions& options) {
  return Comparer(request, options).run();
}

}  // namespace opdiff
