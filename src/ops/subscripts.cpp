#include "ops/subscripts.h"

#include <algorithm>
#include <optional>

#include "ops/gather.h"

namespace opdiff {
namespace {

constexpr int kLetters = 52;

std::optional<int> index_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  return std::nullopt;
}

char letter_of(int index) { return static_cast<char>(index < 26 ? 'A' + index : 'a' + index - 26); }

// A term as written: indices before the ellipsis and after it.
struct Term {
  std::vector<int> before, after;
  bool has_ellipsis = false;

  std::size_t letters() const { return before.size() + after.size(); }
  std::vector<int> with_ellipsis(int axes) const {
    std::vector<int> result = before;
    for (int d = 0; has_ellipsis && d < axes; ++d) result.push_back(kLetters + d);
    result.insert(result.end(), after.begin(), after.end());
    return result;
  }
};

Expected<Term> read_term(std::string_view text) {
  Term term;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 3) == "...") {
      if (term.has_ellipsis) return make_error("the term '{}' has two ellipses", text);
      term.has_ellipsis = true;
      i += 2;
      continue;
    }
    const auto index = index_of(text[i]);
    if (!index) return make_error("'{}' is neither a letter nor part of an ellipsis", text[i]);
    (term.has_ellipsis ? term.after : term.before).push_back(*index);
  }
  return term;
}

std::string name_of(int index) {
  return index < kLetters ? fmt::format("index '{}'", letter_of(index))
                          : fmt::format("axis {} of the ellipsis", index - kLetters);
}

Expected<void> note_extents(const std::vector<int>& axes, const Shape& shape, std::size_t operand, Shape& extents) {
  for (std::size_t d = 0; d < axes.size(); ++d) {
    for (std::size_t other = 0; other < d; ++other)
      if (axes[other] == axes[d] && shape[other] != shape[d])
        return make_error("{} is repeated in operand {} of shape {}, but runs to {} and to {}", name_of(axes[d]),
                          operand, to_string(shape), shape[other], shape[d]);
    std::int64_t& extent = extents[static_cast<std::size_t>(axes[d])];
    if (extent != 1 && shape[d] != 1 && extent != shape[d])
      return make_error("{} runs to {} in operand {}, to {} in one before it", name_of(axes[d]), shape[d], operand,
                        extent);
    if (shape[d] != 1) extent = shape[d];
  }
  return {};
}

Expected<Subscripts> read(std::string_view text, std::span<const Shape> shapes) {
  const std::size_t arrow = text.find("->");
  const bool is_explicit = arrow != std::string_view::npos;
  std::vector<Term> terms;
  std::string_view rest = text.substr(0, arrow);
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    OPDIFF_TRY(Term term, read_term(rest.substr(0, comma)));
    terms.push_back(std::move(term));
    if (more) rest.remove_prefix(comma + 1);
  }
  if (terms.size() != shapes.size())
    return make_error("it has {} terms, {} operands are given", terms.size(), shapes.size());
  std::optional<int> ellipsis;
  for (std::size_t k = 0; k < terms.size(); ++k) {
    const Shape& shape = shapes[k];
    const std::size_t letters = terms[k].letters();
    if (terms[k].has_ellipsis ? letters > shape.size() : letters != shape.size())
      return make_error("the term of operand {} has {} indices, its shape {} {} dimensions", k, letters,
                        to_string(shape), shape.size());
    if (!terms[k].has_ellipsis) continue;
    const auto axes = static_cast<int>(shape.size() - letters);
    if (ellipsis && *ellipsis != axes)
      return make_error("the ellipsis stands for {} dimensions of operand {}, for {} of one before it", axes, k,
                        *ellipsis);
    ellipsis = axes;
  }
  const int axes = ellipsis.value_or(0);
  Subscripts result;
  result.extents.assign(static_cast<std::size_t>(kLetters + axes), 1);
  std::vector<int> count(result.extents.size(), 0);
  for (std::size_t k = 0; k < terms.size(); ++k) {
    result.operands.push_back(terms[k].with_ellipsis(axes));
    OPDIFF_RETURN_IF_ERROR(note_extents(result.operands[k], shapes[k], k, result.extents));
    for (const int index : result.operands[k]) ++count[static_cast<std::size_t>(index)];
  }
  if (!is_explicit) {  // the ellipsis, then what stands there once, in the order of the letters' codes
    for (int d = 0; d < axes; ++d) result.output.push_back(kLetters + d);
    for (int index = 0; index < kLetters; ++index)
      if (count[static_cast<std::size_t>(index)] == 1) result.output.push_back(index);
    return result;
  }
  OPDIFF_TRY(const Term output, read_term(text.substr(arrow + 2)));
  if (axes > 0 && !output.has_ellipsis) return make_error("its result leaves out the ellipsis of the operands");
  result.output = output.with_ellipsis(axes);
  for (auto at = result.output.begin(); at != result.output.end(); ++at) {
    if (count[static_cast<std::size_t>(*at)] == 0) return make_error("{} of the result is in no operand", name_of(*at));
    if (std::find(result.output.begin(), at, *at) != at) return make_error("{} is twice in the result", name_of(*at));
  }
  return result;
}

}  // namespace

Shape Subscripts::output_shape() const {
  Shape shape;
  for (const int index : output) shape.push_back(extents[static_cast<std::size_t>(index)]);
  return shape;
}

Expected<Subscripts> read_subscripts(const std::string& equation, std::span<const Shape> shapes) {
  std::string text = equation;
  std::erase(text, ' ');
  auto result = read(text, shapes);
  if (!result) return make_error("attribute 'equation' is '{}': {}", equation, result.error().message);
  return result;
}

bool Indexing::has(int index) const { return std::find(indices.begin(), indices.end(), index) != indices.end(); }

std::int64_t Indexing::stride(int index) const {
  const auto found = std::find(indices.begin(), indices.end(), index);
  return found == indices.end() ? 0 : strides[static_cast<std::size_t>(found - indices.begin())];
}

Indexing indexing_of(const std::vector<int>& axes, const Shape& shape) {
  Indexing result;
  const Shape strides = strides_of(shape);
  for (std::size_t d = 0; d < axes.size(); ++d) {
    if (shape[d] == 1) continue;
    const auto found = std::find(result.indices.begin(), result.indices.end(), axes[d]);
    if (found != result.indices.end()) {
      result.strides[static_cast<std::size_t>(found - result.indices.begin())] += strides[d];
      continue;
    }
    result.indices.push_back(axes[d]);
    result.strides.push_back(strides[d]);
  }
  return result;
}

std::vector<std::int64_t> places(const Indexing& tensor, const std::vector<int>& indices, const Shape& extents) {
  Shape shape, strides;
  for (const int index : indices) {
    shape.push_back(extents[static_cast<std::size_t>(index)]);
    strides.push_back(tensor.stride(index));
  }
  return gather(shape, strides, 0);
}

}  // namespace opdiff
