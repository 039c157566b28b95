// Accepted, documented divergences of a backend: data in backends/NAME/known.toml (docs/new-backend.md), never code in
// the judge. A case that one explains is shown as known and never counts as clean.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "judge/verdict.h"
#include "workers/backend.h"

namespace opdiff {

// One term of a predicate: SUBJECT [NAME or number] RELATION VALUE|VALUE..., or attribute NAME RELATION attribute NAME.
struct KnownTerm {
  enum class Subject { input, output, dtype, attribute, option, rank, dimension, opset, result };
  enum class Relation { is, is_not, like, not_like, less, at_most, greater, at_least };
  Subject subject = Subject::dtype;
  std::string name;  // of an attribute or option
  int place = 0;     // which input or output; which dimension of the first input, from the end when negative
  Relation relation = Relation::is;
  std::vector<std::string> values;
  std::string other;  // the attribute that an attribute is compared with, element by element
};

struct KnownDivergence {
  std::string op;
  std::string predicate;
  std::string reason;  // one line
  std::string link;    // where it is documented, reported or accepted; of an unreported one docs/found-defects.md#...
  std::string from, before;  // releases; empty: all
  std::vector<KnownTerm> terms;
};

// A value of a term as a number; nullopt: it is none, or not finite.
std::optional<double> known_number(const std::string& text);

// A predicate's terms. The error quotes the term and says what was expected.
Expected<std::vector<KnownTerm>> parse_predicate(std::string_view text);

// All entries of a file; a file that is not there has none. Errors name file, entry and key.
Expected<std::vector<KnownDivergence>> read_known(const std::filesystem::path& file);

// Those that speak of this release with these options of the spec.
std::vector<KnownDivergence> applicable(std::vector<KnownDivergence> known, const std::string& version,
                                        const std::map<std::string, std::string>& options);

// What is known of a backend that answered; of `faulty` that of its base.
Expected<std::vector<KnownDivergence>> known_divergences(const BackendInfo& info);

// A node met with its inputs, and what a backend made of it.
struct JudgedNode {
  const Node& node;
  int opset;
  std::span<const Tensor* const> inputs;  // nullptr: absent
  OutcomeKind outcome;
  std::span<const Tensor* const> got;  // of an ok outcome; nullptr: output not asked for
  std::span<const Verdict> verdicts;   // one for each of `got`
};

// The entry that explains all that is wrong here: with the elements it speaks of put right, the rest passes the judge.
// nullptr: nothing is wrong, or something that no entry speaks of.
const KnownDivergence* match(std::span<const KnownDivergence> known, const JudgedNode& judged);

}  // namespace opdiff
