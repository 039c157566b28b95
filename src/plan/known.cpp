// Matches entries of known.toml; plan/known_reader.cpp reads them.
#include "plan/known.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "base/format.h"
#include "judge/judge.h"
#include "ops/evaluate.h"
#include "ops/gradient.h"
#include "reference/evaluate.h"
#include "workers/environment.h"
#include "workers/fault.h"

namespace opdiff {
namespace {

using Subject = KnownTerm::Subject;
using Relation = KnownTerm::Relation;

constexpr std::string_view kAbsent = "absent";

bool compare(double left, Relation relation, double right) {
  switch (relation) {
    case Relation::is: return left == right;
    case Relation::is_not: return left != right;
    case Relation::like:
    case Relation::not_like: return false;  // of text
    case Relation::less: return left < right;
    case Relation::at_most: return left <= right;
    case Relation::greater: return left > right;
    case Relation::at_least: return left >= right;
  }
  return false;
}

std::vector<double> numbers_of(const Node& node, const std::string& name) {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return {};
  return std::visit(
      [](const auto& value) -> std::vector<double> {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<T>) return {static_cast<double>(value)};
        if constexpr (std::is_same_v<T, std::vector<std::int64_t>> || std::is_same_v<T, std::vector<float>>)
          return std::vector<double>(value.begin(), value.end());
        return {};
      },
      found->second);
}

bool is_negated(const KnownTerm& term) {
  return term.relation == Relation::is_not || term.relation == Relation::not_like;
}

// `is not` of alternatives: none of them.
template <class Holds>
bool any_or_none(const KnownTerm& term, const Holds& is) {
  const bool any = std::any_of(term.values.begin(), term.values.end(), is);
  return is_negated(term) ? !any : any;
}

bool number_holds(const KnownTerm& term, double value) {
  const Relation relation = term.relation == Relation::is_not ? Relation::is : term.relation;
  return any_or_none(term, [&](const std::string& text) { return compare(value, relation, *known_number(text)); });
}

bool attribute_holds(const KnownTerm& term, const Node& node) {
  if (!term.other.empty()) {
    const auto left = numbers_of(node, term.name), right = numbers_of(node, term.other);
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (compare(left[i], term.relation, right[i])) return true;
    return false;
  }
  const auto found = node.attributes.find(term.name);
  const bool pattern = term.relation == Relation::like || term.relation == Relation::not_like;
  const Relation relation = term.relation == Relation::is_not ? Relation::is : term.relation;
  const auto single = [&](const auto& value, const std::string& text) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      const auto number = known_number(text);
      return number && compare(static_cast<double>(value), relation, *number);
    } else if (pattern) {
      return fnmatch(text.c_str(), value.c_str(), 0) == 0;
    } else {
      return relation == Relation::is && value == text;
    }
  };
  return any_or_none(term, [&](const std::string& text) {
    if (found == node.attributes.end()) return relation == Relation::is && text == kAbsent;
    return std::visit(
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, std::shared_ptr<Graph>>) {
            return false;
          } else if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
            return single(value, text);
          } else {
            return std::any_of(value.begin(), value.end(), [&](const auto& item) { return single(item, text); });
          }
        },
        found->second);
  });
}

bool is_of_class(double value, DType dtype, const std::string& name) {
  if (name == "nan") return std::isnan(value);
  if (name == "inf") return std::isinf(value) && value > 0;
  if (name == "-inf") return std::isinf(value) && value < 0;
  if (name == "-0") return value == 0 && std::signbit(value);
  if (name == "lowest") return value == -format_of(dtype).max_finite();
  return value != 0 && std::fabs(value) < format_of(dtype).lambda();  // subnormal
}

class Matcher {
 public:
  Matcher(std::span<const KnownDivergence> known, const JudgedNode& judged) : known_(known), judged_(judged) {}

  const KnownDivergence* find() {
    if (judged_.outcome == OutcomeKind::error) {
      for (const KnownDivergence& entry : known_)
        if (entry.op == operator_name(judged_.node) && asks(entry, "refused") && node_terms_hold(entry) &&
            any_element(entry))
          return &entry;
      return nullptr;
    }
    const bool wrong =
        std::any_of(judged_.verdicts.begin(), judged_.verdicts.end(), [](const Verdict& v) { return v.suspicious(); });
    if (judged_.outcome != OutcomeKind::ok || !wrong || !prepare()) return nullptr;
    for (const KnownDivergence& entry : known_) {
      if (entry.op != operator_name(judged_.node) || asks(entry, "refused") || !node_terms_hold(entry)) continue;
      if (put_right(entry) && passes()) return &entry;
    }
    return nullptr;
  }

 private:
  // The right outputs, and the backend's, which entry after entry puts right.
  bool prepare() {
    auto right = evaluate_node(judged_.node, judged_.opset, judged_.inputs);
    if (!right) return false;
    right_ = *std::move(right);
    for (std::size_t k = 0; k < judged_.got.size() && k < right_.size(); ++k) {
      const Tensor* got = judged_.got[k];
      patched_.push_back(got ? std::optional<Tensor>(got->clone()) : std::nullopt);
      reshaped_ = reshaped_ || (got && (got->shape() != right_[k].shape() || got->dtype() != right_[k].dtype()));
    }
    return true;
  }

  static bool asks(const KnownDivergence& entry, std::string_view result) {
    return std::any_of(entry.terms.begin(), entry.terms.end(), [&](const KnownTerm& term) {
      return term.subject == Subject::result &&
             std::find(term.values.begin(), term.values.end(), result) != term.values.end();
    });
  }

  const Tensor* input(int place) const {
    return static_cast<std::size_t>(place) < judged_.inputs.size() ? judged_.inputs[static_cast<std::size_t>(place)]
                                                                   : nullptr;
  }

  bool node_term_holds(const KnownTerm& term) const {
    const Tensor* first = input(0);
    switch (term.subject) {
      case Subject::input:  // of elements: below
      case Subject::output:
      case Subject::result:
      case Subject::option: return true;  // applicable() has seen to it
      case Subject::attribute: return attribute_holds(term, judged_.node);
      case Subject::opset: return number_holds(term, judged_.opset);
      case Subject::dtype:
        return first &&
               any_or_none(term, [&](const std::string& name) { return *parse_dtype(name) == first->dtype(); });
      case Subject::rank: return first && number_holds(term, static_cast<double>(first->shape().size()));
      case Subject::dimension: {
        if (!first) return false;
        const auto rank = static_cast<int>(first->shape().size());
        const int d = term.place < 0 ? term.place + rank : term.place;
        return d >= 0 && d < rank &&
               number_holds(term, static_cast<double>(first->shape()[static_cast<std::size_t>(d)]));
      }
    }
    return false;
  }
  bool node_terms_hold(const KnownDivergence& entry) const {
    return std::all_of(entry.terms.begin(), entry.terms.end(),
                       [&](const KnownTerm& term) { return node_term_holds(term); });
  }

  // Which elements of the term's input it speaks of.
  std::vector<std::int64_t> elements_of(const KnownTerm& term) const {
    std::vector<std::int64_t> places;
    const Tensor* x = input(term.place);
    if (!x || !is_float(x->dtype())) return places;
    for (std::int64_t i = 0; i < x->size(); ++i)
      if (std::any_of(term.values.begin(), term.values.end(),
                      [&](const std::string& name) { return is_of_class(x->at(i), x->dtype(), name); }))
        places.push_back(i);
    return places;
  }
  bool any_element(const KnownDivergence& entry) const {
    return std::all_of(entry.terms.begin(), entry.terms.end(), [&](const KnownTerm& term) {
      return term.subject != Subject::input || !elements_of(term).empty();
    });
  }

  // The elements of an output that no element of an input goes into: zero where all inputs are one, as sums without
  // terms are.
  std::optional<std::vector<std::vector<bool>>> unreached(const KnownTerm& term) const {
    std::vector<Tensor> ones;
    ones.reserve(judged_.inputs.size());
    std::vector<const Tensor*> inputs;
    for (const Tensor* x : judged_.inputs)
      inputs.push_back(x && is_float(x->dtype()) ? &ones.emplace_back(filled_like(*x, 1)) : x);
    const auto outputs = evaluate_node(judged_.node, judged_.opset, inputs);
    if (!outputs) return std::nullopt;
    std::vector<std::vector<bool>> mask;
    bool any = false;
    for (std::size_t k = 0; k < outputs->size(); ++k) {
      const Tensor& y = (*outputs)[k];
      mask.emplace_back(static_cast<std::size_t>(y.size()), false);
      if (static_cast<int>(k) != term.place) continue;
      for (std::int64_t i = 0; i < y.size(); ++i) {
        mask.back()[static_cast<std::size_t>(i)] = y.at(i) == 0;
        any = any || y.at(i) == 0;
      }
    }
    return any ? std::optional(std::move(mask)) : std::nullopt;
  }

  static Tensor filled_like(const Tensor& x, double value) {
    return Tensor::from_doubles(x.dtype(), x.shape(), std::vector<double>(static_cast<std::size_t>(x.size()), value));
  }

  // The elements of each output that are computed from those elements of an input: NaN is put there, a one everywhere
  // else, and the reference carries the NaN to whatever depends on it. nullopt: none.
  std::optional<std::vector<std::vector<bool>>> reached_by(const KnownTerm& term) const {
    const std::vector<std::int64_t> places = elements_of(term);
    if (places.empty()) return std::nullopt;
    std::vector<Tensor> marked;
    marked.reserve(judged_.inputs.size());
    std::vector<const Tensor*> inputs;
    for (std::size_t k = 0; k < judged_.inputs.size(); ++k) {
      const Tensor* x = judged_.inputs[k];
      if (!x || !is_float(x->dtype())) {
        inputs.push_back(x);
        continue;
      }
      std::vector<double> values(static_cast<std::size_t>(x->size()), 1.0);
      if (static_cast<int>(k) == term.place)
        for (const std::int64_t i : places)
          values[static_cast<std::size_t>(i)] = std::numeric_limits<double>::quiet_NaN();
      inputs.push_back(&marked.emplace_back(Tensor::from_doubles(x->dtype(), x->shape(), values)));
    }
    const auto outputs = evaluate_node(judged_.node, judged_.opset, inputs);
    if (!outputs) return std::nullopt;
    std::vector<std::vector<bool>> reached;
    for (const Tensor& y : *outputs) {
      std::vector<bool> mask(static_cast<std::size_t>(y.size()), false);
      if (is_float(y.dtype())) {
        for (std::int64_t i = 0; i < y.size(); ++i) mask[static_cast<std::size_t>(i)] = std::isnan(y.at(i));
      } else if (!reached.empty() && reached.front().size() == mask.size()) {
        mask = reached.front();  // positions beside values (MaxPool's Indices)
      }
      reached.push_back(std::move(mask));
    }
    if (judged_.node.domain == kGradientDomain) add_reached_by_cotangents(inputs, reached);
    return reached;
  }

  // Of a gradient: also what depends on the cotangents of those outputs that the operator computes from `marked`.
  void add_reached_by_cotangents(std::span<const Tensor* const> marked, std::vector<std::vector<bool>>& reached) const {
    const Call call(judged_.node, judged_.opset, marked);
    const GradientCall gradient(call);
    const auto own = static_cast<std::size_t>(gradient.input_count());
    const auto outputs = evaluate_node(gradient.forward().node(), judged_.opset, marked.first(own));
    if (!outputs) return;
    std::vector<Tensor> cotangents, ones;
    for (std::size_t j = 0; own + j < judged_.inputs.size() && j < outputs->size(); ++j) {
      std::vector<double> values(static_cast<std::size_t>((*outputs)[j].size()), 1.0);
      ones.push_back(filled_like((*outputs)[j], 1));
      for (std::size_t i = 0; i < values.size(); ++i)
        if (std::isnan((*outputs)[j].at(static_cast<std::int64_t>(i))))
          values[i] = std::numeric_limits<double>::quiet_NaN();
      cotangents.push_back(Tensor::from_doubles((*outputs)[j].dtype(), (*outputs)[j].shape(), values));
    }
    const auto with = [&](const std::vector<Tensor>& given) {
      std::vector<const Tensor*> inputs(judged_.inputs.begin(), judged_.inputs.end());
      for (std::size_t j = 0; j < given.size(); ++j)
        if (inputs[own + j]) inputs[own + j] = &given[j];
      return evaluate_node(judged_.node, judged_.opset, inputs);
    };
    const auto touched = with(cotangents), plain = with(ones);
    if (!touched || !plain) return;
    for (std::size_t k = 0; k < reached.size(); ++k)
      for (std::size_t i = 0; i < reached[k].size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        if (std::isnan((*touched)[k].at(at)) && !std::isnan((*plain)[k].at(at))) reached[k][i] = true;
      }
  }

  // Replaces what the entry speaks of by the right values; false when that is nothing.
  bool put_right(const KnownDivergence& entry) {
    std::optional<std::vector<std::vector<bool>>> mask;
    for (const KnownTerm& term : entry.terms) {
      if (term.subject != Subject::input && term.subject != Subject::output) continue;
      auto reached = term.subject == Subject::input ? reached_by(term) : unreached(term);
      if (!reached || reshaped_) return false;
      if (mask) {
        for (std::size_t k = 0; k < mask->size(); ++k)
          for (std::size_t i = 0; i < (*mask)[k].size(); ++i) (*reached)[k][i] = (*reached)[k][i] && (*mask)[k][i];
      }
      mask = std::move(reached);
    }
    for (std::size_t k = 0; k < patched_.size(); ++k) {
      if (!patched_[k]) continue;
      if (!mask) {
        patched_[k] = right_[k];
        continue;
      }
      const std::size_t size = dtype_size(right_[k].dtype());
      for (std::size_t i = 0; i < (*mask)[k].size(); ++i)
        if ((*mask)[k][i])
          std::copy_n(right_[k].bytes().begin() + static_cast<std::ptrdiff_t>(i * size), size,
                      patched_[k]->mutable_bytes().begin() + static_cast<std::ptrdiff_t>(i * size));
    }
    return true;
  }

  bool passes() const {
    std::vector<const Tensor*> got;
    for (const auto& tensor : patched_) got.push_back(tensor ? &*tensor : nullptr);
    const auto verdicts = judge_node(judged_.node, judged_.opset, judged_.inputs, got);
    return std::none_of(verdicts.begin(), verdicts.end(), [](const Verdict& v) { return v.suspicious(); });
  }

  const std::span<const KnownDivergence> known_;
  const JudgedNode& judged_;
  std::vector<Tensor> right_;
  std::vector<std::optional<Tensor>> patched_;
  bool reshaped_ = false;
};

}  // namespace

std::vector<KnownDivergence> applicable(std::vector<KnownDivergence> known, const std::string& version,
                                        const std::map<std::string, std::string>& options) {
  std::erase_if(known, [&](const KnownDivergence& entry) {
    if (!entry.from.empty() && version_less(version, entry.from)) return true;
    if (!entry.before.empty() && !version_less(version, entry.before)) return true;
    return std::any_of(entry.terms.begin(), entry.terms.end(), [&](const KnownTerm& term) {
      if (term.subject != Subject::option) return false;
      const auto found = options.find(term.name);
      const std::string value = found == options.end() ? std::string(kAbsent) : found->second;
      return !any_or_none(term, [&](const std::string& text) { return text == value; });
    });
  });
  return known;
}

const KnownDivergence* match(std::span<const KnownDivergence> known, const JudgedNode& judged) {
  return Matcher(known, judged).find();
}

}  // namespace opdiff
