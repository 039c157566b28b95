#include "judge/quick_pass.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "base/machines.h"
#include "judge/figures.h"
#include "judge/look.h"
#include "judge/plausible.h"
#include "ops/finish.h"

namespace opdiff {
namespace {

constexpr std::size_t kBlock = 256;

// What a yardstick says of some elements in a row that can only be numbers.
struct Block {
  std::size_t size = 0;
  double centre[kBlock], radius[kBlock], deviation[kBlock], rho[kBlock];
};

// Yardsticks: `load` is false where some element must be looked at by itself.
class FromTensor {
 public:
  explicit FromTensor(const EnclosedTensor& tensor) : tensor_(tensor) {}
  EnclosedElement operator[](std::size_t i) const { return tensor_[i]; }
  bool load(std::size_t first, Block* block) const {
    if (!tensor_.low.empty()) return false;
    std::copy_n(tensor_.centre.data() + first, block->size, block->centre);
    std::copy_n(tensor_.radius.data() + first, block->size, block->radius);
    std::copy_n(tensor_.deviation.data() + first, block->size, block->deviation);
    std::copy_n(tensor_.rho.data() + first, block->size, block->rho);
    const auto overflow = tensor_.overflow.begin() + static_cast<std::ptrdiff_t>(first);
    return std::all_of(overflow, overflow + static_cast<std::ptrdiff_t>(block->size),
                       [](std::uint8_t o) { return o == kNoOverflow; });
  }

 private:
  const EnclosedTensor& tensor_;
};

class FromEnclosures {
 public:
  FromEnclosures(std::span<const Enclosure<double>> values, const Profile& profile)
      : values_(values), finished_(profile) {}
  EnclosedElement operator[](std::size_t i) const { return finished_(values_[i]); }
  bool load(std::size_t first, Block* block) const {
    return finished_.plain(values_.data() + first, block->size, block->centre, block->radius, block->deviation,
                           block->rho);
  }

 private:
  std::span<const Enclosure<double>> values_;
  Finish<double> finished_;
};

// What is known of the elements so far.
struct Tally {
  double* z;
  double* centre;
  char* counts;
  std::int64_t exact = 0, unproven = 0;
  double excess = 0;
  std::size_t worst = 0;
  double weight = -1, worst_error = 0;

  void weigh(std::size_t i, double size) {
    const double w = std::fabs(z[i]);
    if (w < weight || (w == weight && size <= worst_error)) return;
    weight = w;
    worst = i;
    worst_error = size;
  }
};

// One element; false: it is no honest rounding.
bool look_at(const EnclosedElement& e, double y, double right, double limit, std::size_t i, Tally* tally) {
  const Look l = look(y, e);
  if (l.fit == Fit::impossible || !(std::fabs(l.z) <= limit)) return false;
  const double error = (y - e.centre) - e.low, size = std::fabs(error);
  tally->unproven += l.fit == Fit::unproven || (l.fit == Fit::possible && is_blurred(e, error));
  tally->z[i] = l.z;
  tally->centre[i] = e.centre;
  tally->counts[i] = e.deviation > 0;
  tally->exact += y == right || (std::isnan(y) && std::isnan(right));
  tally->weigh(i, size);
  if (error != 0 && std::isfinite(error))
    tally->excess = std::max(tally->excess, e.radius > 0 ? size / e.radius : kInfinity);
  return true;
}

// Numbers that are not negative are in the order of their bits.
std::int64_t bits_of(double x) { return std::bit_cast<std::int64_t>(x); }

// The same of a block, in loops that the compiler can do eight at a time; false where an element must be looked at by
// itself, or is no honest rounding.
OPDIFF_FOR_EACH_MACHINE bool look_at(const Block& b, const float* ys, const float* rights, double limit,
                                     std::size_t first, Tally* tally) {
  const std::size_t n = b.size;
  double* const z = tally->z + first;
  double* const centre = tally->centre + first;
  char* const counts = tally->counts + first;
  double error[kBlock], excess[kBlock];
  std::int64_t strange = 0, unproven = 0, exact = 0, largest = 0, largest_excess = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double radius = b.radius[i], deviation = b.deviation[i], rho = b.rho[i];
    const double off = static_cast<double>(ys[i]) - b.centre[i], size = std::fabs(off);
    const double squares = deviation * deviation + rho * rho;
    const double score = off / std::sqrt(squares), part = size / radius;
    const bool differs = off != 0;
    z[i] = differs ? score : 0;
    excess[i] = differs ? part : 0;
    error[i] = size;
    const bool in_range = (squares > kLeastSquares) & (squares < kLargestSquares) & (radius > 0) & (radius < kInfinity);
    const bool fits = (size <= radius + rho) & (std::fabs(score) <= limit) & in_range;
    strange += differs & !fits ? 1 : 0;
    unproven += differs & (rho * 8 > deviation) & (deviation > 0) ? 1 : 0;
  }
  if (strange > 0) return false;
  for (std::size_t i = 0; i < n; ++i) exact += ys[i] == rights[i] ? 1 : 0;
  for (std::size_t i = 0; i < n; ++i) centre[i] = b.centre[i];
  for (std::size_t i = 0; i < n; ++i) counts[i] = b.deviation[i] > 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t score = bits_of(std::fabs(z[i])), part = bits_of(excess[i]);
    largest = score > largest ? score : largest;
    largest_excess = part > largest_excess ? part : largest_excess;
  }
  tally->exact += exact;
  tally->unproven += unproven;
  tally->excess = std::max(tally->excess, std::bit_cast<double>(largest_excess));
  if (std::bit_cast<double>(largest) >= tally->weight)
    for (std::size_t i = 0; i < n; ++i) tally->weigh(first + i, error[i]);
  return true;
}

template <class Yardstick>
std::optional<Verdict> pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                            const Tensor& expected, const Yardstick& yardstick, const std::string& profile,
                            const std::string& explanation, bool with_figures) {
  if (op.unspecified || got.dtype() != DType::f32 || got.size() == 0) return std::nullopt;
  const std::size_t n = static_cast<std::size_t>(got.size());
  const std::span<const float> ys = got.as<float>(), rights = expected.as<float>();
  const double limit = max_limit(got.size());
  const auto z = std::make_unique_for_overwrite<double[]>(n), centre = std::make_unique_for_overwrite<double[]>(n);
  const auto counts = std::make_unique_for_overwrite<char[]>(n);
  Tally tally{z.get(), centre.get(), counts.get()};
  Block block;
  for (std::size_t first = 0; first < n; first += kBlock) {
    block.size = std::min(kBlock, n - first);
    if (yardstick.load(first, &block) && look_at(block, ys.data() + first, rights.data() + first, limit, first, &tally))
      continue;
    for (std::size_t i = first; i < first + block.size; ++i)
      if (!look_at(yardstick[i], ys[i], rights[i], limit, i, &tally)) return std::nullopt;
  }
  if (tally.exact == got.size()) return std::nullopt;  // zeros of the other sign: no yardstick is needed
  const std::vector<double> doubles(ys.begin(), ys.end());
  Scores scores{got.shape(), {z.get(), n}, {counts.get(), n}, {centre.get(), n}, doubles, std::nullopt};
  if (op.group_axes) scores.group_axes = op.group_axes(call, output);
  const Plausibility p = judge_scores(scores, Scoring::first_failure);
  if (!p.plausible) return std::nullopt;
  Verdict v;
  v.rung = Rung::rounding;
  v.excess = tally.excess;
  v.unproven_elements = tally.unproven;
  v.unproven = v.unproven_elements > 0;
  v.profile = profile;
  v.explanation = explanation;
  v.elements = got.size();
  v.counts[static_cast<std::size_t>(Rung::exact)] = tally.exact;
  v.counts[static_cast<std::size_t>(Rung::rounding)] = got.size() - tally.exact;
  v.z_rms = p.rms;
  v.z_mean = p.mean;
  v.z_max = p.max;
  v.z_rms_limit = p.rms_limit;
  v.z_max_limit = p.max_limit;
  const EnclosedElement at = yardstick[tally.worst];
  v.worst = {static_cast<std::int64_t>(tally.worst),
             unravel(static_cast<std::int64_t>(tally.worst), got.shape()),
             doubles[tally.worst],
             at.centre,
             at.radius,
             at.deviation};
  if (with_figures) v.figures = classic_figures(doubles, scores.centre, kF32);
  return v;
}

}  // namespace

std::optional<Verdict> quick_pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                                  const Tensor& expected, const EnclosedTensor& yardstick, const std::string& profile,
                                  const std::string& explanation, bool with_figures) {
  return pass(op, call, output, got, expected, FromTensor(yardstick), profile, explanation, with_figures);
}

std::optional<Verdict> quick_pass(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                                  const Tensor& expected, std::span<const Enclosure<double>> values,
                                  const Profile& profile, const std::string& explanation, bool with_figures) {
  const FromEnclosures yardstick(values, profile);
  return pass(op, call, output, got, expected, yardstick, profile.name, explanation, with_figures);
}

}  // namespace opdiff
