#include "plan/thread_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace opdiff {

ThreadPool::ThreadPool(int threads, bool yielding) {
  for (int i = 0; i < std::max(1, threads); ++i)
    threads_.emplace_back([this, yielding] {
      constexpr int kNice = 10;
      if (yielding) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
      work();
    });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::submit(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void ThreadPool::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return tasks_.empty() && running_ == 0; });
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    lock.unlock();
    task();
    lock.lock();
    --running_;
    ended_.notify_all();
  }
}

}  // namespace opdiff
