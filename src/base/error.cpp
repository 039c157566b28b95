#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace opdiff {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "opdiff: internal error: %s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace opdiff
