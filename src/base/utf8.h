// UTF-8 as JSON and protobuf's text form demand it: names from outside are checked before they travel
// further.
#pragma once

#include <string>
#include <string_view>

namespace opdiff {

// No overlong forms, no surrogates, nothing above U+10FFFF.
bool is_valid_utf8(std::string_view text);
// Every byte that is not part of a valid sequence becomes U+FFFD.
std::string replace_invalid_utf8(std::string_view text);
// Control characters, line separators and marks that turn the direction of writing are written out ("\\x1b", "\\n",
// "\\u202e"), so that a name from outside can neither steer a terminal nor forge a line of a report. The rest stays.
std::string escape_controls(std::string_view text);

}  // namespace opdiff
