// A backend spec, as users write it: NAME@VERSION:key=value,key=value. Which program answers to it is looked up by
// workers/environment.h; workers/open.h starts it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace opdiff {

struct BackendSpec {
  std::string written;  // as the user wrote it; empty when it was made by with_option
  std::string name;     // "onnxruntime"
  std::string version;  // "1.23.2"; empty: the one that the manifest or a binding says
  // A value in parentheses is stored without them: base=(onnxruntime:opt=basic,disable=A) -> "onnxruntime:opt=...".
  std::map<std::string, std::string> options;

  // The value of an option, or `fallback`.
  std::string option(const std::string& key, std::string fallback = "") const;
};

// The error quotes the spec and says what was expected where.
Expected<BackendSpec> parse_spec(std::string_view text);

// "onnxruntime,torch:compile=inductor,mkldnn=0,onednn": a piece `key=value` after a spec with options belongs to it.
Expected<std::vector<BackendSpec>> parse_spec_list(std::string_view text);

// As the user wrote it. Else: options in alphabetical order, values with commas or parentheses in parentheses:
// parse_spec reads it back.
std::string to_string(const BackendSpec& spec);

// The spec with one option set (an empty value removes it). Of `faulty` the base's option is set, not its own:
// with_option(faulty:base=onnxruntime,..., "opt", "disable") plants the same fault in an unoptimised onnxruntime.
Expected<BackendSpec> with_option(const BackendSpec& spec, const std::string& key, const std::string& value);

// The backend itself: of `faulty` its base, or the base's base.
Expected<BackendSpec> innermost(BackendSpec spec);

// The spec with optimisation passes switched off (option `disable`); what it has switched off already stays off.
Expected<BackendSpec> without_passes(const BackendSpec& spec, const std::vector<std::string>& passes);

}  // namespace opdiff
