// Ctrl-C, SIGTERM and SIGHUP end a subcommand in order: workers are killed, temporary folders go, and what was found is
// reported.
#pragma once

#include <atomic>

namespace opdiff {

// Installs the handlers, once, and returns what they set. A second signal ends the program at once. SIGHUP stays
// ignored where it is (nohup).
const std::atomic<bool>* watch_for_interruption();

}  // namespace opdiff
