#include "forms/measure.h"

#include <algorithm>
#include <cmath>

namespace opdiff {
namespace {

// A value below which the share q of the values lies.
double quantile(std::vector<double> values, double q) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// One prepared graph on one backend.
struct Way {
  Backend* backend;
  int handle;
  TensorMap inputs;
  FormCost* cost;
  int repeat = 1;
  std::vector<double> wall_ms;
};

constexpr double kRoundMs = 30;  // of one way in one round
constexpr int kMostRepeats = 50, kLeastRepeats = 3, kMemoryRuns = 3;

void keep_kernels(Backend& backend, const RunnableSide& side, const TensorMap& inputs, FormCost& cost) {
  PrepareOptions options;
  options.kernels = true;
  options.training = side.training ? &*side.training : nullptr;
  int handle = 0;
  const Outcome prepared = backend.prepare(side.graph, options, &handle);
  if (!prepared.ok()) return;
  cost.kernels = prepared.kernels;
  if (!cost.kernels) cost.kernels = backend.run(handle, inputs).kernels;
  backend.release(handle);
}

void keep_memory(Backend& backend, const RunnableSide& side, const TensorMap& inputs, FormCost& cost) {
  PrepareOptions options;
  options.training = side.training ? &*side.training : nullptr;
  int handle = 0;
  if (!backend.prepare(side.graph, options, &handle).ok()) return;
  const Outcome outcome = backend.run(handle, inputs, kMemoryRuns);
  backend.release(handle);
  // The first run pays for what is made lazily.
  if (outcome.ok() && !outcome.peak_bytes.empty()) cost.peak_bytes = outcome.peak_bytes.back();
}

// Prepared and run once or twice; nullopt where it fails.
std::optional<Way> prepared(Backend& backend, const RunnableSide& side, const TensorMap& inputs, FormCost& cost) {
  PrepareOptions options;
  options.training = side.training ? &*side.training : nullptr;
  Way way{&backend, 0, inputs, &cost, 1, {}};
  if (!backend.prepare(side.graph, options, &way.handle).ok()) return std::nullopt;
  const Outcome warm = backend.run(way.handle, inputs, kLeastRepeats);
  if (!warm.ok() || warm.wall_ms.empty()) {
    backend.release(way.handle);
    return std::nullopt;
  }
  way.repeat =
      std::clamp(static_cast<int>(kRoundMs / std::max(warm.wall_ms.back(), 1e-3)), kLeastRepeats, kMostRepeats);
  return way;
}

}  // namespace

std::optional<double> FormCost::median_ms() const {
  if (life_ms.empty()) return std::nullopt;
  return quantile(life_ms, 0.5);
}

double FormCost::spread_ms() const { return wall_ms.empty() ? 0 : quantile(wall_ms, 0.75) - quantile(wall_ms, 0.25); }

std::size_t computing_kernels(const std::vector<Kernel>& kernels) {
  const auto count = std::count_if(kernels.begin(), kernels.end(), [](const Kernel& k) { return !k.nodes.empty(); });
  return count == 0 ? kernels.size() : static_cast<std::size_t>(count);
}

std::optional<bool> fused(const FormRow& row) {
  const auto& before = row.plain_cost.kernels;
  const auto& after = row.whole_cost.kernels;
  if (!before || !after) return std::nullopt;
  return computing_kernels(*after) < computing_kernels(*before) ||
         std::any_of(after->begin(), after->end(), [](const Kernel& kernel) { return kernel.nodes.size() > 1; });
}

Expected<void> measure_form(const Form& form, Workers& workers, const MeasureOptions& options,
                            std::vector<FormRow>& rows) {
  OPDIFF_TRY(FormCase drawn,
             build_case(form, timed_parameters(form, options.fixed), options.dtype, options.seed, options.gradient));
  OPDIFF_TRY(const RunnableCase c, runnable(std::move(drawn), options.gradient));
  std::vector<Way> ways;
  for (FormRow& row : rows) {
    if (row.form != form.name || row.dtype != dtype_name(options.dtype) || row.cases == 0 ||
        row.direction != (options.gradient ? "gradient" : "forward"))
      continue;
    const auto side =
        std::find_if(c.sides.begin(), c.sides.end(), [&](const RunnableSide& s) { return s.name == row.side; });
    if (side == c.sides.end() || !side->without_gradient.empty()) continue;
    const TensorMap inputs = inputs_of(side->graph, c.inputs);
    for (const bool whole : {false, true}) {
      const std::string& spec = whole ? row.backend : row.plain_backend;
      FormCost& cost = whole ? row.whole_cost : row.plain_cost;
      if (whole && row.backend == row.plain_backend) {
        continue;  // one configuration, one cost: copied below
      }
      OPDIFF_TRY(Backend* const backend, workers.get(spec));
      keep_kernels(*backend, *side, inputs, cost);
      if (options.counting) {
        OPDIFF_TRY(Backend* const counting, options.counting->get(spec));
        keep_memory(*counting, *side, inputs, cost);
      }
      std::vector<Workers*> lives = options.lives;
      lives.push_back(&workers);
      for (Workers* const life : lives) {
        OPDIFF_TRY(Backend* const process, life->get(spec));
        if (auto way = prepared(*process, *side, inputs, cost)) ways.push_back(*std::move(way));
      }
    }
  }
  for (int round = 0; round < options.rounds; ++round)
    for (Way& way : ways) {
      const Outcome outcome = way.backend->run(way.handle, way.inputs, way.repeat);
      way.wall_ms.insert(way.wall_ms.end(), outcome.wall_ms.begin(), outcome.wall_ms.end());
    }
  for (const Way& way : ways) {
    way.backend->release(way.handle);
    if (way.wall_ms.empty()) continue;
    way.cost->wall_ms.insert(way.cost->wall_ms.end(), way.wall_ms.begin(), way.wall_ms.end());
    way.cost->life_ms.push_back(quantile(way.wall_ms, 0.5));
  }
  for (FormRow& row : rows)
    if (row.form == form.name && row.backend == row.plain_backend) row.whole_cost = row.plain_cost;
  return {};
}

}  // namespace opdiff
