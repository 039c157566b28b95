#include "forms/check.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/shell.h"
#include "forms/bundle.h"
#include "locate/compare.h"
#include "numerics/parallel.h"
#include "ops/evaluate.h"
#include "plan/isolated.h"
#include "workers/fault.h"

namespace opdiff {
namespace {

constexpr int kLocalised = 3;  // cases of one anomaly that are localised; the stage of the others is theirs

struct OracledCase {
  RunnableCase c;
  CaseOracle oracle;
};

// One side of one case on one backend.
struct SideOutcome {
  Outcome plain, whole;
  Reading plain_reading, whole_reading;
  struct NodeAlone {
    int index;
    NodeOutcome outcome;
  };
  std::vector<NodeAlone> nodes;
  std::map<std::string, Verdict> explained;  // outputs of the whole that the readings would have called wrong

  bool any_node(const std::function<bool(const NodeOutcome&)>& holds) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](const NodeAlone& node) { return holds(node.outcome); });
  }
  // The worst of the nodes that ran.
  Rung rung() const {
    Rung worst = Rung::exact;
    for (const NodeAlone& node : nodes)
      if (!node.outcome.known) worst = std::max(worst, node.outcome.rung());
    return worst;
  }
  bool known() const {
    return any_node([](const NodeOutcome& node) { return node.known.has_value(); });
  }
  bool unsupported() const {
    return plain.kind == OutcomeKind::unsupported || whole.kind == OutcomeKind::unsupported ||
           any_node([](const NodeOutcome& node) { return node.outcome == OutcomeKind::unsupported; });
  }
  std::string reason() const {
    if (!whole.ok()) return whole.reason;
    if (!plain.ok()) return plain.reason;
    for (const NodeAlone& node : nodes)
      if (!node.outcome.ok()) return node.outcome.reason;
    return "";
  }
};

// What is wrong with an outcome, if anything.
struct Anomaly {
  enum class Kind { node, whole, failure } kind = Kind::node;
  int node = -1;
  Rung rung = Rung::defect;
  bool certain = false;  // a proven bound is broken; else it must be seen again on other data
  std::string evidence;
  OutcomeKind failure = OutcomeKind::ok;
};

bool failed(const Outcome& outcome) { return !outcome.ok() && outcome.kind != OutcomeKind::unsupported; }

// Where a node is beyond rounding for a reason with a name (an approximation of exp, bf16 operands), the noise floor
// does not know it; then the plain run shows how much of it honest composition makes.
bool explained(const SideOutcome& o, const Reading& reading) {
  if (reading.wrong_shape || reading.non_finite_differs || o.rung() <= Rung::rounding || o.rung() >= Rung::unlikely)
    return false;
  return &reading == &o.plain_reading || reading.error() <= 2 * o.plain_reading.error();
}

std::optional<Anomaly> anomaly_of(const SideOutcome& o) {
  std::optional<Anomaly> worst;
  for (const SideOutcome::NodeAlone& node : o.nodes) {
    if (node.outcome.known || node.outcome.outcome == OutcomeKind::unsupported) continue;
    if (!node.outcome.ok())
      return Anomaly{Anomaly::Kind::failure,
                     node.index,
                     Rung::defect,
                     true,
                     fmt::format("{}: {}", to_string(node.outcome.outcome), node.outcome.reason),
                     node.outcome.outcome};
    if (node.outcome.rung() < Rung::unlikely || (worst && worst->rung >= node.outcome.rung())) continue;
    const Verdict& v = *node.outcome.worst();
    worst = Anomaly{Anomaly::Kind::node, node.index, v.rung, v.rung == Rung::defect,
                    v.worst.index < 0
                        ? v.note
                        : fmt::format("element {}: {:.9g} for {:.9g}, radius {:.3g}, deviation {:.3g}", v.worst.index,
                                      v.worst.got, v.worst.centre, v.worst.radius, v.worst.deviation)};
  }
  if (worst || o.known()) return worst;
  for (const Outcome* outcome : {&o.whole, &o.plain})
    if (failed(*outcome))
      return Anomaly{Anomaly::Kind::failure,
                     -1,
                     Rung::defect,
                     true,
                     fmt::format("{}: {}", to_string(outcome->kind), outcome->reason),
                     outcome->kind};
  for (const Reading* reading : {&o.whole_reading, &o.plain_reading})
    if (reading->wrong && !explained(o, *reading))
      return Anomaly{Anomaly::Kind::whole, -1, Rung::defect, reading->wrong_shape || reading->non_finite_differs,
                     fmt::format("'{}' is off by {:.3g} noise floors (root mean square {:.3g})", reading->worst_output,
                                 reading->max, reading->rms)};
  return std::nullopt;
}

// Got and expected of a node alone, for the pattern of its error.
ErrorPatterns patterns_of_node(const RunnableCase& c, std::size_t side, int index, Backend& backend) {
  const Graph& graph = c.sides[side].graph;
  ErrorPatterns patterns;
  const Visitor visit = [&](const NodeVisit& visit) -> Expected<void> {
    if (visit.index != index) return {};
    NodeTensors tensors{visit.index, visit.inputs, visit.outputs};
    const NodeBatch batch = batch_of(graph, {tensors});
    const Outcome outcome = run_once(backend, batch.isolated.graph, batch.feeds, {.isolated = true});
    const MetaOperator* op = find_operator(visit.node->domain, visit.node->op);
    const Call call(*visit.node, graph.opset(visit.node->domain), visit.inputs);
    std::vector<EnclosedTensor> enclosed;
    if (op->kernels.f64 && is_float(working_dtype(*op, call)))
      enclosed = enclose(*op, call, inner_f32(working_dtype(*op, call)), 0);
    for (std::size_t slot = 0; slot < visit.node->outputs.size(); ++slot) {
      const auto got = outcome.outputs.find(batch.output_name(0, slot));
      if (got == outcome.outputs.end()) continue;
      const Tensor& expected = *visit.outputs[slot];
      std::vector<double> floor(static_cast<std::size_t>(expected.size()));
      for (std::size_t i = 0; i < floor.size(); ++i) {
        const double rounding = is_float(expected.dtype()) ? format_of(expected.dtype()).unit_roundoff() *
                                                                 std::fabs(expected.at(static_cast<std::int64_t>(i)))
                                                           : 0;
        floor[i] = slot < enclosed.size() && i < enclosed[slot].deviation.size()
                       ? std::max(enclosed[slot].deviation[i], rounding)
                       : rounding;
      }
      ErrorPatterns found = error_patterns(
          got->second, expected, floor, is_float(expected.dtype()) ? format_of(expected.dtype()).unit_roundoff() : 0);
      if (found != ErrorPatterns{"rounded"} || patterns.empty()) patterns = std::move(found);
    }
    return {};
  };
  if (!evaluate_graph(graph, inputs_of(graph, c.inputs), visit)) return {};
  return patterns;
}

ErrorPatterns patterns_of_whole(const SideOutcome& o, const OracledCase& c, std::size_t side) {
  const Reading& reading = o.whole_reading.wrong ? o.whole_reading : o.plain_reading;
  const Outcome& outcome = o.whole_reading.wrong ? o.whole : o.plain;
  const auto got = outcome.outputs.find(reading.worst_output);
  if (got == outcome.outputs.end()) return {"wrong shape"};
  const Tensor& centre = c.oracle.centre.at(reading.worst_output);
  if (got->second.shape() != centre.shape()) return {"wrong shape"};
  const Tensor wide = Tensor::from_doubles(DType::f64, centre.shape(), got->second.to_doubles());
  return error_patterns(wide, centre, c.oracle.floors[side].at(reading.worst_output),
                        format_of(c.c.dtype).unit_roundoff());
}

double relative_error(const Outcome& outcome, const TensorMap& centre) {
  double worst = 0;
  for (const auto& [name, right] : centre) {
    const auto got = outcome.outputs.find(name);
    if (got == outcome.outputs.end() || got->second.shape() != right.shape()) continue;
    double error = 0, size = 0;
    for (std::int64_t i = 0; i < right.size(); ++i) {
      const double c = right.at(i), d = got->second.at(i) - c;
      if (!std::isfinite(d)) continue;
      error = std::max(error, std::fabs(d));
      size = std::max(size, std::fabs(c));
    }
    if (size > 0) worst = std::max(worst, error / size);
  }
  return worst;
}

class FormChecker {
 public:
  FormChecker(const Form& form, const std::vector<FormBackend>& backends, Workers& workers, Coverage& coverage,
              const FormCheckOptions& options)
      : form_(form), backends_(backends), workers_(workers), coverage_(coverage), options_(options) {
    for (const FormBackend& backend : backends) specs_.push_back(backend.spec);
  }

  Expected<FormCheck> run() {
    for (int done = 0; done < options_.cases && !options_.compare.stop();) {
      const int count = std::min(options_.bundle, options_.cases - done);
      OPDIFF_TRY(const std::vector<OracledCase> cases, next_cases(done, count));
      if (cases.empty() || options_.compare.stop()) break;
      const auto checked = check(cases);
      if (!checked && !options_.compare.stop()) return tl::unexpected<Error>(checked.error());
      done += count;
      options_.compare.report(fmt::format("{} {}{}", form_.name, dtype(), options_.gradient ? " gradient" : ""), done,
                              options_.cases);
    }
    for (auto& [place, row] : rows_) result_.rows.push_back(std::move(row));
    return std::move(result_);
  }

 private:
  std::string dtype() const { return std::string(dtype_name(options_.dtype)); }
  std::string direction() const { return options_.gradient ? "gradient" : "forward"; }
  std::uint64_t data_seed(int index) const { return options_.compare.seed + static_cast<std::uint64_t>(index); }

  // Empty: the form has no gradient; a note says why.
  Expected<std::vector<OracledCase>> next_cases(int first, int count) {
    std::vector<std::int64_t> planned(form_.regions.size());
    std::vector<OracledCase> cases;
    for (int i = first; i < first + count && !options_.compare.stop(); ++i) {
      const std::size_t r = coverage_.least(form_, specs_, dtype(), direction(), planned);
      ++planned[r];
      Rng rng(data_seed(i), fmt::format("{} parameters", form_.name));
      auto parameters = draw_parameters(form_, form_.regions[r], options_.fixed, rng);
      // Given parameters that no region allows are refused; a region that they leave empty is not.
      if (!parameters && !options_.fixed.empty()) parameters = draw_parameters(form_, {}, options_.fixed, rng);
      if (!parameters) return tl::unexpected<Error>(parameters.error());
      OPDIFF_TRY(OracledCase made, make_case(*parameters, data_seed(i)));
      if (made.c.sides.empty()) return std::vector<OracledCase>{};
      made.c.region = form_.regions[r].name;
      cases.push_back(std::move(made));
    }
    std::vector<std::string> errors(cases.size());
    parallel_for(static_cast<std::int64_t>(cases.size()), [&](std::int64_t k) {
      if (options_.compare.stop()) return;
      OracledCase& one = cases[static_cast<std::size_t>(k)];
      auto oracle = make_oracle(one.c);
      if (oracle)
        one.oracle = *std::move(oracle);
      else
        errors[static_cast<std::size_t>(k)] = oracle.error().message;
    });
    for (std::size_t k = 0; k < cases.size(); ++k)
      if (!errors[k].empty()) return make_error("{} ({}): {}", form_.name, to_string(cases[k].c.parameters), errors[k]);
    return cases;
  }

  Expected<OracledCase> make_case(const Parameters& parameters, std::uint64_t seed) {
    OPDIFF_TRY(FormCase drawn, build_case(form_, parameters, options_.dtype, seed, options_.gradient));
    auto made = runnable(std::move(drawn), options_.gradient);
    if (!made) {
      note(made.error().message);
      return OracledCase{};
    }
    return OracledCase{*std::move(made), {}};
  }

  void note(const std::string& text) {
    if (std::find(result_.notes.begin(), result_.notes.end(), text) == result_.notes.end())
      result_.notes.push_back(text);
  }

  Expected<void> check(const std::vector<OracledCase>& cases) {
    // First sides' results with the optimiser off, by case and backend.
    std::vector<std::vector<TensorMap>> definition(cases.size(), std::vector<TensorMap>(backends_.size()));
    std::vector<std::vector<bool>> ran(cases.size(), std::vector<bool>(backends_.size(), true));
    for (std::size_t side = 0; side < cases[0].c.sides.size(); ++side) {
      if (const std::string& why = cases[0].c.sides[side].without_gradient; !why.empty()) {
        note(fmt::format("{}: {} has no gradient: {}", form_.name, cases[0].c.sides[side].name, why));
        continue;
      }
      std::vector<const OracledCase*> pointers;
      for (const OracledCase& one : cases) pointers.push_back(&one);
      OPDIFF_TRY(const auto outcomes, run_side(pointers, side, backends_));
      for (std::size_t k = 0; k < cases.size(); ++k) {
        for (std::size_t b = 0; b < backends_.size(); ++b) {
          if (options_.compare.stop()) return {};
          const SideOutcome& o = outcomes[k][b];
          if (side == 0) definition[k][b] = o.plain.outputs;
          if (o.unsupported()) ran[k][b] = false;
          OPDIFF_RETURN_IF_ERROR(count(cases[k], side, b, o, definition[k][b]));
        }
      }
    }
    for (std::size_t k = 0; k < cases.size(); ++k)
      for (std::size_t b = 0; b < backends_.size(); ++b)
        coverage_.add(form_, cases[k].c.parameters, backends_[b].spec, dtype(), direction(), ran[k][b]);
    return {};
  }

  // [case][backend]. Backends of one plain spec share its runs.
  Expected<std::vector<std::vector<SideOutcome>>> run_side(const std::vector<const OracledCase*>& cases,
                                                           std::size_t side, const std::vector<FormBackend>& backends) {
    std::vector<const RunnableCase*> runnables;
    for (const OracledCase* one : cases) runnables.push_back(&one->c);
    std::map<std::string, std::vector<Outcome>> wholes;
    std::vector<BackendSource> sources;
    Comparison alone;
    for (const FormBackend& backend : backends) {
      for (const std::string& spec : {backend.plain, backend.spec}) {
        if (wholes.count(spec)) continue;
        OPDIFF_TRY(Backend* const worker, workers_.get(spec));
        wholes[spec] = run_cases(*worker, runnables, side);
      }
      const std::string& plain = backend.plain;
      if (std::any_of(alone.backends.begin(), alone.backends.end(), [&](const auto& i) { return i.spec == plain; }))
        continue;
      OPDIFF_TRY(Backend* const worker, workers_.get(plain));
      alone.backends.push_back(worker->info());
      alone.backends.back().spec = plain;
      sources.push_back([worker]() -> Expected<Backend*> { return worker; });
    }
    const Bundle all = bundle(runnables, side);
    CompareOptions quiet = options_.compare;
    quiet.progress = {};
    OPDIFF_TRY(const TensorMap ignored, check_nodes(all.graph, all.inputs, sources, quiet, &alone));

    std::vector<std::vector<SideOutcome>> outcomes(cases.size(), std::vector<SideOutcome>(backends.size()));
    std::size_t next = 0;  // the bundle's nodes are the cases' nodes, one after the other
    for (std::size_t k = 0; k < cases.size(); ++k) {
      const RunnableSide& one = cases[k]->c.sides[side];
      for (std::size_t b = 0; b < backends.size(); ++b) {
        SideOutcome& o = outcomes[k][b];
        o.plain = wholes.at(backends[b].plain)[k];
        o.whole = wholes.at(backends[b].spec)[k];
        const Floor& floor = cases[k]->oracle.floors[side];
        o.plain_reading = read_side(o.plain, one, cases[k]->oracle.centre, floor);
        o.whole_reading = read_side(o.whole, one, cases[k]->oracle.centre, floor);
        if (o.whole_reading.wrong) {
          o.explained = explained_outputs(o.whole, one, cases[k]->c);
          o.whole_reading = read_side(o.whole, one, cases[k]->oracle.centre, floor, o.explained);
        }
        for (std::size_t i = 0; i < one.graph.nodes.size() && next + i < alone.nodes.size(); ++i) {
          const auto& by_backend = alone.nodes[next + i].backends;
          if (const auto found = by_backend.find(backends[b].plain); found != by_backend.end())
            o.nodes.push_back({static_cast<int>(i), found->second});
        }
      }
      next += one.graph.nodes.size();
    }
    return outcomes;
  }

  Expected<void> count(const OracledCase& one, std::size_t side, std::size_t b, const SideOutcome& o,
                       const TensorMap& definition) {
    const FormBackend& backend = backends_[b];
    FormRow& row = rows_[{side, b}];
    row.form = form_.name;
    row.side = one.c.sides[side].name;
    row.backend = backend.spec;
    row.plain_backend = backend.plain;
    row.dtype = dtype();
    row.direction = direction();
    if (o.unsupported()) {
      ++row.unsupported;
      ++row.reasons[o.reason().substr(0, 160)];
      return {};
    }
    if (o.known()) ++row.known;
    std::optional<Anomaly> anomaly = anomaly_of(o);
    if (anomaly && !anomaly->certain) {
      OPDIFF_TRY(const bool confirmed, confirm(one, side, backend, *anomaly));
      if (!confirmed) anomaly.reset();
    }
    if (anomaly) {
      ++row.alarms;
      observe(one, side, backend, o, *anomaly);
    }
    if (!o.plain.ok() || !o.whole.ok()) {
      ++row.errors;
      ++row.reasons[o.reason().substr(0, 160)];
      return {};
    }
    ++row.cases;
    if (o.known() || anomaly) return {};  // the figures are those of honest runs
    ++row.honest;
    Rung worst = o.rung();
    for (const auto& [name, verdict] : o.explained) worst = std::max(worst, verdict.rung);
    ++row.rungs[static_cast<std::size_t>(worst)];
    const auto explain = [&](const Verdict& v) {
      if (v.rung > Rung::rounding && v.rung < Rung::unlikely)
        ++row.explanations[fmt::format("{}: {}", to_string(v.rung), v.explanation)];
    };
    for (const SideOutcome::NodeAlone& node : o.nodes)
      if (const Verdict* v = node.outcome.worst()) explain(*v);
    for (const auto& [name, verdict] : o.explained) explain(verdict);
    row.plain.keep(o.plain_reading);
    row.whole.keep(o.whole_reading);
    row.difference.keep(read_difference(o.whole.outputs, one.oracle.floors[side], definition, one.oracle.floors[0]));
    row.relative_error = std::max(row.relative_error, relative_error(o.whole, one.oracle.centre));
    return {};
  }

  // Of the same parameters with other data: is one of two wrong in the same way? With the first that makes two of
  // three.
  Expected<bool> confirm(const OracledCase& one, std::size_t side, const FormBackend& backend, const Anomaly& anomaly) {
    for (int draw = 1; draw < kConfirmingDraws; ++draw) {
      const std::uint64_t seed = one.c.seed ^ (std::uint64_t{0xC0FFEE} << (8 * draw));
      OPDIFF_TRY(OracledCase again, make_case(one.c.parameters, seed));
      OPDIFF_TRY(again.oracle, make_oracle(again.c));
      OPDIFF_TRY(const auto outcomes, run_side({&again}, side, {backend}));
      const auto found = anomaly_of(outcomes[0][0]);
      if (found && found->kind == anomaly.kind && found->node == anomaly.node) return true;
    }
    return false;
  }

  void observe(const OracledCase& one, std::size_t side, const FormBackend& backend, const SideOutcome& o,
               const Anomaly& anomaly) {
    const RunnableSide& run = one.c.sides[side];
    Observation seen;
    seen.rung = anomaly.rung;
    seen.form = form_.name;
    seen.side = run.name;
    seen.parameters = one.c.parameters;
    seen.evidence = anomaly.evidence;
    const bool by_plain = anomaly.node >= 0 || !o.whole_reading.wrong;
    const std::string& spec = by_plain && !failed(o.whole) ? backend.plain : backend.spec;
    seen.kind.backend = spec;
    seen.kind.dtype = dtype();
    seen.kind.failure = anomaly.failure;
    seen.kind.outcome = anomaly.kind == Anomaly::Kind::failure ? anomaly.evidence.substr(0, 80) : "wrong values";
    std::string where = fmt::format("{} side {}", form_.name, side);
    if (anomaly.node >= 0) {
      seen.kind.op = operator_name(run.graph.nodes[static_cast<std::size_t>(anomaly.node)]);
      where = seen.kind.op;
    }
    const Blame blame = locate(one, run, spec, where + " on " + spec + seen.kind.outcome);
    seen.kind.stage = blame.stage;
    seen.kind.pass = blame.pass;
    if (anomaly.node < 0) seen.kind.op = blame.op.empty() ? std::string(form_.name) : blame.op;
    if (anomaly.kind == Anomaly::Kind::node) {
      if (const auto worker = workers_.get(spec)) seen.patterns = patterns_of_node(one.c, side, anomaly.node, **worker);
    } else if (anomaly.kind == Anomaly::Kind::whole) {
      seen.patterns = patterns_of_whole(o, one, side);
    }
    seen.repeat = fmt::format("{} {} --backends {} --dtype {}{} --seed {} --cases 1", options_.command, form_.name,
                              shell_quoted(backend.spec), dtype(), options_.gradient ? " --gradient" : "", one.c.seed);
    for (const auto& [name, value] : one.c.parameters) seen.repeat += fmt::format(" --set {}={}", name, value);
    result_.observations.push_back(std::move(seen));
  }

  struct Blame {
    std::string op, stage = "unknown", pass;
  };
  Blame locate(const OracledCase& one, const RunnableSide& run, const std::string& spec, const std::string& key) {
    std::vector<Blame>& known = blames_[key];
    if (static_cast<int>(known.size()) >= kLocalised) return known.front();
    const TensorMap inputs = inputs_of(run.graph, one.c.inputs);
    CompareRequest request{run.graph, inputs, {}, {}};
    request.backends.push_back(
        {spec, [this, spec] { return workers_.get(spec); },
         [this, spec](const std::vector<std::string>& passes) { return workers_.without(spec, passes); }});
    CompareOptions options = options_.compare;
    options.training = run.training;
    options.progress = {};
    Blame blame;
    if (const auto compared = compare_model(request, options); compared && !compared->culprits.empty()) {
      const Culprit& culprit = compared->culprits.front();
      blame = {culprit.op, std::string(to_string(culprit.stage)), culprit.pass};
    }
    known.push_back(blame);
    // One of them located it, perhaps not the first.
    if (known.front().op.empty()) std::swap(known.front(), known.back());
    return known.front();
  }

  const Form& form_;
  const std::vector<FormBackend>& backends_;
  Workers& workers_;
  Coverage& coverage_;
  const FormCheckOptions& options_;
  std::vector<std::string> specs_;
  std::map<std::pair<std::size_t, std::size_t>, FormRow> rows_;  // by side and backend
  std::map<std::string, std::vector<Blame>> blames_;
  FormCheck result_;
};

}  // namespace

void WorstReading::keep(const Reading& reading) {
  rms = std::max(rms, reading.rms);
  max = std::max(max, reading.max);
}

std::string FormRow::verdict() const {
  if (alarms > 0) return "wrong";
  if (cases == 0) return unsupported > 0 ? "unsupported" : errors > 0 ? "error" : "not run";
  for (int rung = kRungCount - 1; rung > static_cast<int>(Rung::rounding); --rung)
    if (rungs[static_cast<std::size_t>(rung)] > 0) return std::string(to_string(static_cast<Rung>(rung)));
  return "rounding";
}

Expected<FormCheck> check_form(const Form& form, const std::vector<FormBackend>& backends, Workers& workers,
                               Coverage& coverage, const FormCheckOptions& options) {
  return FormChecker(form, backends, workers, coverage, options).run();
}

}  // namespace opdiff
