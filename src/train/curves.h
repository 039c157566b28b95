// Loss and accuracy over the steps of a training: as a table (CSV), as tensors in checkpoints, and as a plot by
// gnuplot.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace opdiff {

struct StepPoint {
  double loss = 0;
  std::int64_t right = -1;  // of the batch's rows; -1: no classes
  std::int64_t rows = 0;
};
struct TestPoint {
  std::int64_t step = 0;  // done
  double loss = 0;
  std::int64_t right = -1, rows = 0;
};
struct Curves {
  std::vector<StepPoint> steps;
  std::vector<TestPoint> tests;
};

TensorMap curves_to_tensors(const Curves& curves);
Expected<Curves> curves_from_tensors(const TensorMap& tensors);

// A line a step: step, loss, accuracy, and the test's where there was one after this step; numbers that read back to
// the same bits.
std::string curves_csv(const Curves& curves);
Expected<Curves> read_curves_csv(const std::filesystem::path& file);

struct PlottedRun {
  std::string name;
  Curves curves;
  bool noise = false;  // behind the others, thin and grey, all by one name
};

// SVG: the loss as means of neighbouring steps, and the test accuracy below; one line a run. The error says where
// gnuplot is to be had.
Expected<void> plot_curves(std::vector<PlottedRun> runs, const std::filesystem::path& file);

}  // namespace opdiff
