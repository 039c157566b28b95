// The report on the terminal: one screen first (what, where, how bad, how sure, the command that repeats it), a table
// per node on request. Returns text; who prints it decides about colour.
#pragma once

#include <string>

#include "report/result.h"

namespace opdiff {

struct ConsoleOptions {
  bool colour = false;
  bool details = false;
};
std::string console_report(const RunRecord& record, const ConsoleOptions& options);

}  // namespace opdiff
