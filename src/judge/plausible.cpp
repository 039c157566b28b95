#include "judge/plausible.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "numerics/statistics.h"

namespace opdiff {
namespace {

// Root mean square and count of independent scores among `elements`: equal (centre, got) pairs once, error groups once.
struct Independent {
  double rms = 0;
  std::int64_t count = 0;
};

std::int64_t group_of(std::int64_t index, const Shape& shape, const Shape& strides, const std::vector<int>& axes) {
  std::int64_t group = 0;
  for (const int axis : axes) {
    const auto a = static_cast<std::size_t>(axis);
    group = group * shape[a] + index / strides[a] % shape[a];
  }
  return group;
}

// A set of 64-bit keys that never grows: the tensors have millions of elements and are scored again for every rung.
class Seen {
 public:
  explicit Seen(std::size_t count) : slots_(std::bit_ceil(2 * count + 1), 0) {}
  // False when it was in it.
  bool insert(std::uint64_t key) {
    if (key == 0) return !std::exchange(zero_, true);
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = (key * 0x9E3779B97F4A7C15u >> 20) & mask;; at = (at + 1) & mask) {
      if (slots_[at] == key) return false;
      if (slots_[at] == 0) {
        slots_[at] = key;
        return true;
      }
    }
  }

 private:
  std::vector<std::uint64_t> slots_;  // 0: free
  bool zero_ = false;
};

Independent independent_scores(const Scores& s, const Shape& strides, std::span<const std::int64_t> elements) {
  struct Group {
    double squares = 0;
    std::int64_t count = 0;
  };
  Seen seen(elements.size());
  std::unordered_map<std::int64_t, Group> groups;
  double squares = 0;
  std::int64_t count = 0;
  for (const std::int64_t i : elements) {
    const auto k = static_cast<std::size_t>(i);
    const std::uint64_t pair = std::bit_cast<std::uint64_t>(s.centre[k]) * 0x9E3779B97F4A7C15u ^
                               std::rotl(std::bit_cast<std::uint64_t>(s.got[k]), 31) * 0xD1342543DE82EF95u;
    if (!seen.insert(pair)) continue;
    squares += s.z[k] * s.z[k];
    ++count;
    if (s.group_axes) {
      Group& g = groups[group_of(i, s.shape, strides, *s.group_axes)];
      g.squares += s.z[k] * s.z[k];
      ++g.count;
    }
  }
  if (count == 0) return {};
  if (!s.group_axes) return {std::sqrt(squares / static_cast<double>(count)), count};
  double total = 0;
  for (const auto& [id, g] : groups) total += g.squares / static_cast<double>(g.count);
  return {std::sqrt(total / static_cast<double>(groups.size())), static_cast<std::int64_t>(groups.size())};
}

struct Slice {
  double squares = 0;
  std::int64_t count = 0;
};

// Of each axis, in one walk over the rows along the last one.
std::vector<std::vector<Slice>> slices_of(const Scores& s) {
  std::vector<std::vector<Slice>> slices;
  for (const std::int64_t extent : s.shape) slices.emplace_back(static_cast<std::size_t>(extent));
  if (s.shape.empty()) return slices;
  const std::size_t rank = s.shape.size(), row = static_cast<std::size_t>(s.shape.back());
  Shape at(rank, 0);
  for (std::size_t first = 0; first < s.z.size(); first += row) {
    Slice whole;
    for (std::size_t k = 0; k < row; ++k) {
      if (!s.counts[first + k]) continue;
      const double square = s.z[first + k] * s.z[first + k];
      slices[rank - 1][k].squares += square;
      ++slices[rank - 1][k].count;
      whole.squares += square;
      ++whole.count;
    }
    for (std::size_t axis = 0; axis + 1 < rank; ++axis) {
      Slice& slice = slices[axis][static_cast<std::size_t>(at[axis])];
      slice.squares += whole.squares;
      slice.count += whole.count;
    }
    for (std::size_t axis = rank - 1; axis-- > 0;) {
      if (++at[axis] < s.shape[axis]) break;
      at[axis] = 0;
    }
  }
  return slices;
}

}  // namespace

double max_limit(std::int64_t count) {
  return std::max(kLeastMaxLimit, normal_quantile(kOdds / (2 * static_cast<double>(std::max<std::int64_t>(count, 1)))));
}

double rms_limit(std::int64_t count, double looks) {
  return std::max(kLeastRmsLimit, kHonestRms * rms_quantile(std::max<std::int64_t>(count, 1), kOdds / looks));
}

Plausibility judge_scores(const Scores& s, Scoring scoring) {
  Plausibility p;
  const Shape strides = strides_of(s.shape);
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < s.z.size(); ++i) {
    if (!s.counts[i]) continue;
    ++count;
    sum += s.z[i];
    squares += s.z[i] * s.z[i];
    p.max = std::max(p.max, std::fabs(s.z[i]));
  }
  if (count == 0) return p;
  p.mean = sum / static_cast<double>(count);
  p.rms = std::sqrt(squares / static_cast<double>(count));
  p.max_limit = max_limit(count);
  double looks = 1;
  for (const std::int64_t extent : s.shape) looks += extent > 1 ? static_cast<double>(extent) : 0;
  p.rms_limit = rms_limit(count, looks);
  if (!(p.max <= p.max_limit)) {
    p.plausible = false;
    p.odds = std::min(p.odds, std::min(1.0, normal_tail(p.max) * static_cast<double>(count)));
  }
  if (scoring == Scoring::first_failure && !p.plausible) return p;
  // The limit falls with the number of independent scores: whoever passes with all elements counted passes.
  const auto look = [&](const std::vector<std::int64_t>& elements) {
    const Independent scores = independent_scores(s, strides, elements);
    const double limit = rms_limit(scores.count, looks);
    if (scores.rms <= limit) return;
    p.plausible = false;
    const double odds = std::min(1.0, rms_tail(scores.count, scores.rms / kHonestRms) * looks);
    if (odds <= p.odds) {
      p.odds = odds;
      p.rms_limit = limit;
      p.rms = scores.rms;
    }
  };
  std::vector<std::int64_t> elements;
  if (p.rms > p.rms_limit) {
    for (std::size_t i = 0; i < s.z.size(); ++i)
      if (s.counts[i]) elements.push_back(static_cast<std::int64_t>(i));
    look(elements);
  }
  if (scoring == Scoring::first_failure && !p.plausible) return p;
  const auto n = static_cast<std::int64_t>(s.z.size());
  const std::vector<std::vector<Slice>> slices = slices_of(s);
  for (std::size_t axis = 0; axis < s.shape.size(); ++axis) {
    const std::int64_t extent = s.shape[axis];
    if (extent <= 1) continue;
    for (std::int64_t k = 0; k < extent; ++k) {
      const Slice& slice = slices[axis][static_cast<std::size_t>(k)];
      if (slice.count <= 1) continue;  // one element has a limit of its own
      const double rms = std::sqrt(slice.squares / static_cast<double>(slice.count));
      if (rms <= kLeastRmsLimit || rms <= rms_limit(slice.count, looks)) continue;
      elements.clear();
      for (std::int64_t start = k * strides[axis]; start < n; start += strides[axis] * extent)
        for (std::int64_t i = start; i < start + strides[axis]; ++i)
          if (s.counts[static_cast<std::size_t>(i)]) elements.push_back(i);
      look(elements);
      if (scoring == Scoring::first_failure && !p.plausible) return p;
    }
  }
  return p;
}

}  // namespace opdiff
