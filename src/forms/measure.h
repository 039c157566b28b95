// What a form's sides cost on each backend: time before and after, peak memory, and the kernels that are executed.
#pragma once

#include "forms/check.h"

namespace opdiff {

struct MeasureOptions {
  DType dtype = DType::f32;
  bool gradient = false;
  Parameters fixed;
  std::uint64_t seed = 0;
  int rounds = 3;  // all ways take turns in each, so that a busy machine slows all of them
  // Further processes of each backend: where its memory happens to lie makes one slower than the next, for good.
  std::vector<Workers*> lives;
  Workers* counting = nullptr;  // with OpenOptions::count_memory; nullptr: no memory
};

// Fills the costs of the rows of this form in this dtype and direction that have run, on the form's timed case. A way
// that fails has none.
Expected<void> measure_form(const Form& form, Workers& workers, const MeasureOptions& options,
                            std::vector<FormRow>& rows);

// Kernels that stand for nodes of the graph. Reorders of a layout do not; a backend that cannot tell counts all.
std::size_t computing_kernels(const std::vector<Kernel>& kernels);

// Whether the optimiser made fewer kernels of it, or one of several nodes; nullopt: the backend does not say.
std::optional<bool> fused(const FormRow& row);

}  // namespace opdiff
