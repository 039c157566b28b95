// One line on the terminal, overwritten.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <string>

namespace opdiff {

class ProgressLine {
 public:
  explicit ProgressLine(bool shown) : shown_(shown) {}
  ~ProgressLine() { clear(); }
  // total 0: not known, no bar.
  void show(const std::string& what, std::int64_t done, std::int64_t total) {
    if (!shown_) return;
    const std::lock_guard lock(mutex_);
    std::string line = what;
    if (total > 0) {
      constexpr std::int64_t kWidth = 24;
      const auto filled = static_cast<std::size_t>(kWidth * done / total);
      line = fmt::format("[{:<{}}] {}/{} {}", std::string(filled, '#'), kWidth, done, total, line);
    }
    fmt::print(stderr, "\r\x1b[K{}", line.substr(0, 100));
    std::fflush(stderr);
    dirty_ = true;
  }
  void clear() {
    if (dirty_) fmt::print(stderr, "\r\x1b[K");
    dirty_ = false;
  }

 private:
  const bool shown_;
  bool dirty_ = false;
  std::mutex mutex_;
};

}  // namespace opdiff
