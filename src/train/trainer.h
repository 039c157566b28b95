// The training loop: steps of one graph over an assignment of its nodes to backends, with curves, checkpoints, proven
// steps, and an account of how it ended. train/recipe.h says what to do, train/execution.h does a step.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "train/checkpoint.h"
#include "train/data.h"
#include "train/free_run.h"
#include "train/recipe.h"
#include "train/step.h"
#include "train/step_check.h"

namespace opdiff {

struct TrainOptions {
  std::optional<std::int64_t> steps;  // no more than so many, counted from the first
  bool resume = false;
  bool fallback = false;         // the reference takes what a backend refuses
  std::int64_t check_every = 0;  // judge each so-manieth step, from the first on; 0: none
  bool check_last = false;
  std::optional<std::uint64_t> noise;  // start from parameters off by a rounding, drawn by this (train/curve_noise.h)
  bool free = false;                   // perturbed reference trainings beside this one (train/free_run.h)
  int threads = 1;                     // that judge
  std::function<BackendSource(const std::string& spec, bool alone)> open;  // alone: see OpenOptions
  const std::atomic<bool>* interrupted = nullptr;
  struct StepReport {
    std::int64_t step, steps, epoch;
    double loss;
    std::optional<double> accuracy;  // of the batch
  };
  std::function<void(const StepReport&)> on_step;
  struct EpochReport {
    std::int64_t epoch, epochs;
    double loss;                     // mean over the epoch's samples
    std::optional<double> accuracy;  // the same
    std::optional<TestPoint> test;
    double seconds;
  };
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(const std::string&)> on_note;
};

// How a step of the assignment and the same step of the reference differ, both from the assignment's state.
struct LockstepPoint {
  std::int64_t step = 0;
  double loss = 0, reference_loss = 0;
  double difference = 0;  // largest of the state's next values
  std::string tensor;     // where
  double reading = -1;    // that tensor's error in noise floors (root mean square), where it was measured
};

enum class TrainEnd { finished, interrupted, not_finite, died, failed };
struct TrainResult {
  TrainEnd end = TrainEnd::finished;
  std::string reason;  // unless finished or interrupted
  std::int64_t step = 0, epoch = 0;
  Curves curves;
  std::vector<std::string> specs;
  std::vector<std::size_t> nodes_of;  // by spec
  std::size_t segments = 0;
  std::vector<std::string> fallen_back;  // node ids
  std::int64_t deaths = 0;
  std::vector<CheckedNode> checked;
  std::vector<LockstepPoint> lockstep;
  std::vector<DriftPoint> drift;
  // The first step at which the training left the noise of honest ones, and its nodes judged there.
  std::optional<DriftPoint> left;
  std::vector<CheckedNode> checked_where_left;
  double step_seconds = 0;  // of all steps that were run, without checks and tests
  std::int64_t steps_run = 0;

  bool has_defect() const;
};

// Errors are the recipe's, the data's or the model's, before the first step, or a backend that cannot do what it is
// asked to. What happens later is in the result; a checkpoint of the last whole step is in the recipe's `out` then.
Expected<TrainResult> train(const Recipe& recipe, const TrainOptions& options);

}  // namespace opdiff
