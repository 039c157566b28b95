// Commands that are printed for people to run again.
#pragma once

#include <string>

namespace opdiff {

// As a shell reads it: quoted when needed.
std::string shell_quoted(const std::string& text);

}  // namespace opdiff
