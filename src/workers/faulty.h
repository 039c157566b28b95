// `faulty:base=SPEC,...`: any backend with one fault planted in it, by an edit of the graph that it is sent or of what
// it returns. The faults sit among the base's honest rounding. What each does: fault_table().
#pragma once

#include <memory>

#include "workers/backend.h"
#include "workers/spec.h"

namespace opdiff {

// A table for people: name, what it does, its options.
std::string fault_table();

// `spec` is the whole of `faulty:...`; `base` has been opened from its option `base`.
Expected<std::unique_ptr<Backend>> plant_fault(const BackendSpec& spec, std::unique_ptr<Backend> base);

}  // namespace opdiff
