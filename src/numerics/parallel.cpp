#include "numerics/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "numerics/profile.h"
#include "numerics/working.h"

namespace opdiff {
namespace {

std::atomic<int> thread_limit = 0;
thread_local bool inside = false;

}  // namespace

SumOrder& working_order() {
  thread_local SumOrder order;
  return order;
}

SerialScope::SerialScope() : outer_(std::exchange(inside, true)) {}
SerialScope::~SerialScope() { inside = outer_; }

void set_threads(int threads) { thread_limit = threads; }

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  const int limit = thread_limit > 0 ? thread_limit.load() : static_cast<int>(std::thread::hardware_concurrency());
  const auto threads = static_cast<int>(std::min<std::int64_t>(std::max(limit, 1), count));
  if (threads <= 1 || inside) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<std::int64_t> next = 0;
  const Arithmetic profile = arithmetic();
  const SumOrder order = working_order();
  std::exception_ptr failure;  // out of memory, mostly: the first one goes to the caller
  std::mutex failing;
  const auto work = [&] {
    const ProfileScope scope(profile);
    const SerialScope nested;
    working_order() = order;
    try {
      for (std::int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      const std::lock_guard lock(failing);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int t = 1; t < threads; ++t) pool.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace opdiff
