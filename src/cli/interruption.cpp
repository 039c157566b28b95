#include "cli/interruption.h"

#include <csignal>

namespace opdiff {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may touch nothing else

extern "C" void on_signal(int) {
  interrupted.store(true);
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>* watch_for_interruption() {
  static const bool installed = [] {
    for (const int signal : kSignals) {
      if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
    }
    return true;
  }();
  static_cast<void>(installed);
  return &interrupted;
}

}  // namespace opdiff
