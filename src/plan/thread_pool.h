// A fixed number of threads that run tasks in the order given. Tasks write to places of their own, so no result depends
// on how many threads there are.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace opdiff {

class ThreadPool {
 public:
  // `yielding`: to whatever else wants a core (a lower priority), for work that nobody waits for yet.
  explicit ThreadPool(int threads, bool yielding = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void submit(std::function<void()> task);
  // Returns when every task submitted before has ended.
  void wait();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable ended_;
  std::deque<std::function<void()>> tasks_;
  std::size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace opdiff
