// For programs that allocate the same large tensors over and over, as each step of a training does.
#pragma once

namespace opdiff {

// Blocks below this are taken from the heap, and this much that is free stays in it.
inline constexpr int kKeptBytes = 1 << 30;

// What this process frees is not given back to the system, which would clear every page of it again.
void keep_freed_memory();

}  // namespace opdiff
