#include "base/memory.h"

#include <malloc.h>

namespace opdiff {

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

}  // namespace opdiff
