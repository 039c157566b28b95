// Splits independent pieces of work over the machine's cores. The pieces are the same whatever the number of threads,
// so results are too. The caller's profile goes with the work.
#pragma once

#include <cstdint>
#include <functional>

namespace opdiff {

// Calls body(i) for every i in [0, count), in any order, on up to `set_threads` threads. Nested calls run on the
// caller's thread.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

// While one is in scope, parallel_for runs on this thread alone: the caller has work of its own for every core.
class SerialScope {
 public:
  SerialScope();
  ~SerialScope();
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;

 private:
  bool outer_;
};

// 0: the number of cores (the default).
void set_threads(int threads);

}  // namespace opdiff
