#include "workers/spec.h"

#include <algorithm>
#include <optional>

namespace opdiff {
namespace {

constexpr std::string_view kForm = "write NAME, NAME@VERSION or NAME@VERSION:key=value,key=value";

bool is_name(std::string_view text) {
  const auto legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  return !text.empty() && text[0] >= 'a' && text[0] <= 'z' && std::all_of(text.begin(), text.end(), legal);
}

bool is_version(std::string_view text) {
  const auto legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '+' || c == '-' || c == '!';
  };
  return !text.empty() && text[0] != '.' && text[0] != '-' && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), legal);
}

bool is_key(std::string_view text) {
  const auto legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), legal);
}

// Pieces between commas that stand in no parentheses; nullopt when parentheses do not match.
std::optional<std::vector<std::string>> split(std::string_view text) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (c == ')' && --depth < 0) return std::nullopt;
    if (c == ',' && depth == 0) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  if (depth != 0) return std::nullopt;
  return pieces;
}

// The parentheses that enclose the whole of a value are no part of it.
std::string unwrap(std::string value) {
  if (value.size() < 2 || value.front() != '(' || value.back() != ')') return value;
  int depth = 0;
  for (std::size_t i = 0; i + 1 < value.size(); ++i) {
    if (value[i] == '(') ++depth;
    if (value[i] == ')' && --depth == 0) return value;
  }
  return value.substr(1, value.size() - 2);
}

}  // namespace

std::string BackendSpec::option(const std::string& key, std::string fallback) const {
  const auto found = options.find(key);
  return found == options.end() ? std::move(fallback) : found->second;
}

Expected<BackendSpec> parse_spec(std::string_view text) {
  BackendSpec spec;
  spec.written = text;
  const auto colon = text.find(':');
  const std::string_view head = text.substr(0, colon);
  const auto at = head.find('@');
  spec.name = head.substr(0, at);
  if (!is_name(spec.name)) {
    return make_error("backend spec '{}': '{}' is no backend's name (lower case letters, digits, '-', '_'); {}", text,
                      spec.name, kForm);
  }
  if (at != std::string_view::npos) {
    spec.version = head.substr(at + 1);
    if (!is_version(spec.version)) {
      return make_error("backend spec '{}': '{}' after '@' is no version; {}", text, spec.version, kForm);
    }
  }
  if (colon == std::string_view::npos) return spec;
  const auto pieces = split(text.substr(colon + 1));
  if (!pieces) return make_error("backend spec '{}': its parentheses do not match", text);
  for (const std::string& piece : *pieces) {
    const auto equals = piece.find('=');
    const std::string key = piece.substr(0, equals);
    if (equals == std::string::npos || !is_key(key)) {
      return make_error("backend spec '{}': '{}' is no option of the form key=value; {}", text, piece, kForm);
    }
    if (!spec.options.emplace(key, unwrap(piece.substr(equals + 1))).second) {
      return make_error("backend spec '{}': option '{}' is given twice", text, key);
    }
  }
  return spec;
}

Expected<std::vector<BackendSpec>> parse_spec_list(std::string_view text) {
  const auto pieces = split(text);
  if (!pieces) return make_error("backends '{}': the parentheses do not match", text);
  std::vector<std::string> specs;
  for (const std::string& piece : *pieces) {
    const auto equals = piece.find('=');
    const bool option = equals != std::string::npos && piece.find(':') >= equals;
    if (option && !specs.empty() && specs.back().find(':') != std::string::npos) {
      specs.back() += "," + piece;
    } else {
      specs.push_back(piece);
    }
  }
  std::vector<BackendSpec> result;
  for (const std::string& spec : specs) {
    OPDIFF_TRY(auto parsed, parse_spec(spec));
    result.push_back(std::move(parsed));
  }
  return result;
}

std::string to_string(const BackendSpec& spec) {
  if (!spec.written.empty()) return spec.written;
  std::string text = spec.name;
  if (!spec.version.empty()) text += "@" + spec.version;
  char separator = ':';
  for (const auto& [key, value] : spec.options) {
    const bool wrap =
        value.find_first_of(",()") != std::string::npos || (key == "base" && value.find(':') != std::string::npos);
    text += fmt::format("{}{}={}{}{}", separator, key, wrap ? "(" : "", value, wrap ? ")" : "");
    separator = ',';
  }
  return text;
}

Expected<BackendSpec> with_option(const BackendSpec& spec, const std::string& key, const std::string& value) {
  BackendSpec changed = spec;
  changed.written.clear();
  if (spec.name == "faulty") {
    OPDIFF_TRY(const auto base, parse_spec(spec.option("base")));
    OPDIFF_TRY(const auto changed_base, with_option(base, key, value));
    changed.options["base"] = to_string(changed_base);
    return changed;
  }
  if (value.empty()) {
    changed.options.erase(key);
  } else {
    changed.options[key] = value;
  }
  return changed;
}

Expected<BackendSpec> innermost(BackendSpec spec) {
  while (spec.name == "faulty") {
    OPDIFF_TRY(spec, parse_spec(spec.option("base")));
  }
  return spec;
}

Expected<BackendSpec> without_passes(const BackendSpec& spec, const std::vector<std::string>& passes) {
  OPDIFF_TRY(const BackendSpec base, innermost(spec));
  std::string disabled = base.option("disable");
  for (const std::string& pass : passes) disabled += (disabled.empty() ? "" : "+") + pass;
  return with_option(spec, "disable", disabled);
}

}  // namespace opdiff
