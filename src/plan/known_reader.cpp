// Reads known.toml; plan/known.cpp matches what it says.
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "ops/evaluate.h"
#include "plan/known.h"
#include "workers/environment.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

using Subject = KnownTerm::Subject;
using Relation = KnownTerm::Relation;

constexpr std::uintmax_t kMaximumFile = 1u << 20;

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> pieces;
  std::size_t start = 0;
  for (auto at = text.find(separator); at != std::string_view::npos; at = text.find(separator, start)) {
    pieces.emplace_back(text.substr(start, at - start));
    start = at + separator.size();
  }
  pieces.emplace_back(text.substr(start));
  return pieces;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::string& word : split(text, " "))
    if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::optional<int> small_integer(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < -64 || value > 64) return std::nullopt;
  return value;
}

const std::map<std::string, Subject> kSubjects = {
    {"input", Subject::input},   {"output", Subject::output}, {"dtype", Subject::dtype},
    {"rank", Subject::rank},     {"option", Subject::option}, {"attribute", Subject::attribute},
    {"result", Subject::result}, {"opset", Subject::opset},   {"dimension", Subject::dimension}};
const std::map<std::string, Relation> kRelations = {{"is", Relation::is},     {"like", Relation::like},
                                                    {"<", Relation::less},    {"<=", Relation::at_most},
                                                    {">", Relation::greater}, {">=", Relation::at_least}};
const std::set<std::string> kInputClasses = {"nan", "inf", "-inf", "-0", "subnormal", "lowest"};
const std::set<std::string> kOutputClasses = {"unreached"};
const std::set<std::string> kResults = {"refused"};

// Subjects whose values are of a set of words, and 'is not' is not for them.
const std::set<std::string>* words_for(Subject subject) {
  switch (subject) {
    case Subject::input: return &kInputClasses;
    case Subject::output: return &kOutputClasses;
    case Subject::result: return &kResults;
    default: return nullptr;
  }
}

Expected<void> check_values(const KnownTerm& term) {
  const bool pattern = term.relation == Relation::like || term.relation == Relation::not_like;
  const bool ordered = !pattern && term.relation != Relation::is && term.relation != Relation::is_not;
  const bool numeric =
      term.subject == Subject::rank || term.subject == Subject::dimension || term.subject == Subject::opset;
  if (ordered && !numeric && term.subject != Subject::attribute)
    return make_error("only attribute, rank, dimension and opset can be compared with < <= > >=");
  if (pattern && term.subject != Subject::attribute) return make_error("only an attribute can be like a pattern");
  const std::set<std::string>* const words = words_for(term.subject);
  if (term.relation == Relation::is_not && words) return make_error("'is not' is not for input, output and result");
  for (const std::string& value : term.values) {
    if (value.empty()) return make_error("a value is missing");
    if ((ordered || numeric) && !known_number(value)) return make_error("'{}' is no number", value);
    if (words && !words->contains(value)) return make_error("'{}' is none of {}", value, fmt::join(*words, ", "));
    if (term.subject == Subject::dtype && !parse_dtype(value)) return make_error("'{}' is no dtype", value);
  }
  return {};
}

Expected<KnownTerm> parse_term(std::string_view text) {
  const std::vector<std::string> words = words_of(text);
  KnownTerm term;
  std::size_t at = 0;
  const auto next = [&]() -> std::string { return at < words.size() ? words[at++] : std::string(); };
  const std::string subject = next();
  const auto found = kSubjects.find(subject);
  if (found == kSubjects.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : kSubjects) names.push_back(name);
    return make_error("term '{}' must begin with one of {}", text, fmt::join(names, ", "));
  }
  term.subject = found->second;
  if (term.subject == Subject::attribute || term.subject == Subject::option) {
    term.name = next();
  } else if (term.subject == Subject::dimension ||
             ((term.subject == Subject::input || term.subject == Subject::output) && at < words.size() &&
              words[at] != "is")) {
    const auto place = small_integer(next());
    if (!place || (term.subject != Subject::dimension && *place < 0))
      return make_error("term '{}': expected a number after {}", text, subject);
    term.place = *place;
  }
  std::string word = next();
  const bool not_like = word == "not";
  if (not_like) word = next();
  const auto relation = kRelations.find(word);
  if (relation == kRelations.end() || (not_like && relation->second != Relation::like))
    return make_error("term '{}': expected 'is', 'is not', 'like', 'not like', <, <=, > or >= after {}", text, subject);
  term.relation = not_like ? Relation::not_like : relation->second;
  if (term.relation == Relation::is && at < words.size() && words[at] == "not") {
    term.relation = Relation::is_not;
    ++at;
  }
  if (term.subject == Subject::attribute && at + 2 == words.size() && words[at] == "attribute") {
    term.other = words[at + 1];
    return term;
  }
  if (at + 1 != words.size())
    return make_error("term '{}': expected one value at its end, alternatives joined by '|'", text);
  term.values = split(words[at], "|");
  if (const auto right = check_values(term); !right) return make_error("term '{}': {}", text, right.error().message);
  return term;
}

// Nothing that a terminal would obey.
bool one_line(const std::string& text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

Expected<KnownDivergence> entry_of(const toml::table& table) {
  KnownDivergence entry;
  const std::map<std::string_view, std::string*> keys = {{"operator", &entry.op},   {"predicate", &entry.predicate},
                                                         {"reason", &entry.reason}, {"link", &entry.link},
                                                         {"from", &entry.from},     {"before", &entry.before}};
  for (const auto& [key, value] : table) {
    const auto known = keys.find(key.str());
    if (known == keys.end())
      return make_error("'{}' is none of operator, predicate, reason, link, from, before", std::string_view(key.str()));
    const auto text = value.value_exact<std::string>();
    if (!text || !one_line(*text)) return make_error("'{}' must be a string of one line", std::string_view(key.str()));
    *known->second = *text;
  }
  for (const std::string_view key : {"operator", "predicate", "reason", "link"})
    if (keys.at(key)->empty()) return make_error("'{}' is missing", key);
  const auto dot = entry.op.find('.');
  const std::string domain = dot == std::string::npos ? "" : "opdiff." + entry.op.substr(0, dot);
  if (!find_operator(domain, dot == std::string::npos ? entry.op : entry.op.substr(dot + 1)))
    return make_error("operator = '{}': there is no such operator", entry.op);
  if (!entry.link.starts_with("https://") && !entry.link.starts_with("http://") && !entry.link.starts_with("docs/"))
    return make_error("link = '{}' is neither an address nor a page of docs/; where is it documented?", entry.link);
  if (!entry.from.empty() && !entry.before.empty() && !version_less(entry.from, entry.before))
    return make_error("from = '{}' is not before '{}'", entry.from, entry.before);
  auto terms = parse_predicate(entry.predicate);
  if (!terms) return with_context("predicate", terms.error());
  entry.terms = *std::move(terms);
  return entry;
}

}  // namespace

std::optional<double> known_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Expected<std::vector<KnownTerm>> parse_predicate(std::string_view text) {
  std::vector<KnownTerm> terms;
  for (const std::string& piece : split(text, " and ")) {
    OPDIFF_TRY(KnownTerm term, parse_term(piece));
    terms.push_back(std::move(term));
  }
  return terms;
}

Expected<std::vector<KnownDivergence>> read_known(const fs::path& file) {
  std::vector<KnownDivergence> entries;
  std::error_code error;
  if (!fs::exists(file, error)) return entries;
  if (!fs::is_regular_file(file, error)) return make_error("{}: not a file", file.string());
  if (const auto size = fs::file_size(file, error); error || size > kMaximumFile)
    return make_error("{}: larger than {} bytes", file.string(), kMaximumFile);
  try {
    const auto table = toml::parse_file(file.string());
    for (const auto& [key, value] : table) {
      if (key.str() != "known" || !value.is_array())
        return make_error("{}: '{}' is not expected; write [[known]]", file.string(), std::string_view(key.str()));
      for (const auto& item : *value.as_array()) {
        const std::string where =
            fmt::format("{}:{}: entry {}", file.string(), item.source().begin.line, entries.size() + 1);
        if (!item.is_table()) return make_error("{}: not a table; write [[known]]", where);
        auto entry = entry_of(*item.as_table());
        if (!entry) return with_context(where, entry.error());
        entries.push_back(*std::move(entry));
      }
    }
  } catch (const toml::parse_error& problem) {
    return make_error("{}:{}: {}", file.string(), problem.source().begin.line, problem.description());
  }
  return entries;
}

Expected<std::vector<KnownDivergence>> known_divergences(const BackendInfo& info) {
  OPDIFF_TRY(BackendSpec spec, parse_spec(info.spec));
  while (spec.name == "faulty" && spec.options.contains("base")) {
    OPDIFF_TRY(spec, parse_spec(spec.option("base")));
  }
  OPDIFF_TRY(const fs::path root, opdiff_root());
  OPDIFF_TRY(auto known, read_known(root / "backends" / spec.name / "known.toml"));
  return applicable(std::move(known), info.version, spec.options);
}

}  // namespace opdiff
