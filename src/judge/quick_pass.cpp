#include "judge/quick_pass.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/machines.h"
#include "judge/figures.h"
#include "judge/look.h"
#include "judge/plausible.h"
#include "ops/finish.h"

namespace opdiff {

namespace {
constexpr std::size_t kBlock = 256;
}

// What a yardstick says of some elements in a row that can only be numbers.
struct QuickPass::Block {
  std::size_t size = 0;
  double centre[kBlock], radius[kBlock], deviation[kBlock], rho[kBlock];
};

namespace {

// Numbers that are not negative are in the order of their bits.
std::int64_t bits_of(double x) { return std::bit_cast<std::int64_t>(x); }

// What is found in a block: of z the largest magnitude.
struct Found {
  std::int64_t exact = 0, unproven = 0;
  double largest = 0, excess = 0;
};

// look() at a block, in loops that the compiler can do eight elements at a time. False where an element must be looked
// at by itself, or is no honest rounding.
OPDIFF_FOR_EACH_MACHINE bool look_at_block(std::size_t n, const double* centre, const double* radius,
                                           const double* deviation, const double* rho, const float* ys,
                                           const float* rights, double limit, double* z, double* error, Found* found) {
  double excess[kBlock];
  std::int64_t strange = 0, unproven = 0, exact = 0, largest = 0, largest_excess = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double r = radius[i], d = deviation[i], own = rho[i];
    const double off = static_cast<double>(ys[i]) - centre[i], size = std::fabs(off);
    const double squares = d * d + own * own;
    const double score = off / std::sqrt(squares), part = size / r;
    const bool differs = off != 0;
    z[i] = differs ? score : 0;
    excess[i] = differs ? part : 0;
    error[i] = size;
    const bool in_range = (squares > kLeastSquares) & (squares < kLargestSquares) & (r > 0) & (r < kInfinity);
    const bool fits = (size <= r + own) & (std::fabs(score) <= limit) & in_range;
    strange += differs & !fits ? 1 : 0;
    unproven += differs & (own * 8 > d) & (d > 0) ? 1 : 0;
  }
  if (strange > 0) return false;
  for (std::size_t i = 0; i < n; ++i) exact += ys[i] == rights[i] ? 1 : 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t score = bits_of(std::fabs(z[i])), part = bits_of(excess[i]);
    largest = score > largest ? score : largest;
    largest_excess = part > largest_excess ? part : largest_excess;
  }
  *found = {exact, unproven, std::bit_cast<double>(largest), std::bit_cast<double>(largest_excess)};
  return true;
}

// Yardsticks: `load` is false where some element must be looked at by itself.
class FromTensor {
 public:
  explicit FromTensor(const EnclosedTensor& tensor) : tensor_(tensor) {}
  EnclosedElement operator[](std::size_t i) const { return tensor_[i]; }
  template <class Block>
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
  FromEnclosures(std::size_t first, std::span<const Enclosure<double>> values, const Profile& profile)
      : first_(first), values_(values), finished_(profile) {}
  EnclosedElement operator[](std::size_t i) const { return finished_(values_[i - first_]); }
  template <class Block>
  bool load(std::size_t first, Block* block) const {
    return finished_.plain(values_.data() + (first - first_), block->size, block->centre, block->radius,
                           block->deviation, block->rho);
  }

 private:
  std::size_t first_;
  std::span<const Enclosure<double>> values_;
  Finish<double> finished_;
};

}  // namespace

void QuickPass::Tally::weigh(std::size_t i, double z, double size) {
  const double w = std::fabs(z);
  if (w < weight || (w == weight && size <= worst_error)) return;
  weight = w;
  worst = i;
  worst_error = size;
}

// As if the pieces had been looked at in their order.
void QuickPass::Tally::add(const Tally& other) {
  exact += other.exact;
  unproven += other.unproven;
  excess = std::max(excess, other.excess);
  if (other.weight < weight) return;
  if (other.weight == weight) {
    // Of errors that are no numbers (infinity less infinity) the last one counts, of others the first that is largest.
    const bool has_order = worst_error == worst_error && other.worst_error == other.worst_error;
    const bool is_later = other.worst > worst;
    if (has_order ? other.worst_error < worst_error || (other.worst_error == worst_error && is_later) : !is_later)
      return;
  }
  weight = other.weight;
  worst = other.worst;
  worst_error = other.worst_error;
  at = other.at;
}

QuickPass::QuickPass(const MetaOperator& op, const Call& call, int output, const Tensor& got, const Tensor& expected,
                     const Profile& profile, std::string explanation, bool with_figures)
    : op_(op),
      call_(call),
      output_(output),
      got_(got),
      profile_(profile),
      explanation_(std::move(explanation)),
      with_figures_(with_figures),
      limit_(max_limit(got.size())),
      failed_(op.unspecified || got.dtype() != DType::f32 || got.size() == 0) {
  if (failed_) return;
  const auto n = static_cast<std::size_t>(got.size());
  ys_ = got.as<float>();
  rights_ = expected.as<float>();
  z_ = std::make_unique_for_overwrite<double[]>(n);
  centre_ = std::make_unique_for_overwrite<double[]>(n);
  counts_ = std::make_unique_for_overwrite<char[]>(n);
}

void QuickPass::look(const EnclosedTensor& yardstick) {
  if (!failed_) look_with(0, ys_.size(), FromTensor(yardstick));
}

void QuickPass::look(std::int64_t first, std::span<const Enclosure<double>> values) {
  if (failed_) return;
  const auto start = static_cast<std::size_t>(first);
  look_with(start, values.size(), FromEnclosures(start, values, profile_));
}

template <class Yardstick>
void QuickPass::look_with(std::size_t first, std::size_t count, const Yardstick& yardstick) {
  Tally tally;
  Block block;
  const std::size_t end = first + count;
  for (std::size_t start = first; start < end; start += kBlock) {
    block.size = std::min(kBlock, end - start);
    if (yardstick.load(start, &block) && look_at(block, start, &tally)) continue;
    for (std::size_t i = start; i < start + block.size; ++i)
      if (!look_at(yardstick[i], i, &tally)) {
        failed_ = true;
        return;
      }
  }
  if (count == 0) return;
  tally.at = yardstick[tally.worst];
  const std::lock_guard lock(mutex_);
  tally_.add(tally);
}

// One element; false: it is no honest rounding.
bool QuickPass::look_at(const EnclosedElement& e, std::size_t i, Tally* tally) {
  const double y = ys_[i], right = rights_[i];
  const Look l = opdiff::look(y, e);
  if (l.fit == Fit::impossible || !(std::fabs(l.z) <= limit_)) return false;
  const double error = (y - e.centre) - e.low, size = std::fabs(error);
  tally->unproven += l.fit == Fit::unproven || (l.fit == Fit::possible && is_blurred(e, error));
  z_[i] = l.z;
  centre_[i] = e.centre;
  counts_[i] = e.deviation > 0;
  tally->exact += y == right || (std::isnan(y) && std::isnan(right));
  tally->weigh(i, l.z, size);
  if (error != 0 && std::isfinite(error))
    tally->excess = std::max(tally->excess, e.radius > 0 ? size / e.radius : kInfinity);
  return true;
}

// The same of a block; false also where one of its elements must be looked at by itself.
bool QuickPass::look_at(const Block& b, std::size_t first, Tally* tally) {
  double error[kBlock];
  Found found;
  if (!look_at_block(b.size, b.centre, b.radius, b.deviation, b.rho, ys_.data() + first, rights_.data() + first, limit_,
                     &z_[first], error, &found))
    return false;
  std::copy_n(b.centre, b.size, &centre_[first]);
  std::transform(b.deviation, b.deviation + b.size, &counts_[first], [](double d) { return d > 0; });
  tally->exact += found.exact;
  tally->unproven += found.unproven;
  tally->excess = std::max(tally->excess, found.excess);
  if (found.largest >= tally->weight)
    for (std::size_t i = 0; i < b.size; ++i) tally->weigh(first + i, z_[first + i], error[i]);
  return true;
}

std::optional<Verdict> QuickPass::verdict() {
  if (failed_) return std::nullopt;
  const std::size_t n = ys_.size(), worst = tally_.worst;
  if (tally_.exact == got_.size()) return std::nullopt;  // zeros of the other sign: no yardstick is needed
  const std::vector<double> doubles = got_.to_doubles();
  Scores scores{got_.shape(), {z_.get(), n}, {counts_.get(), n}, {centre_.get(), n}, doubles, std::nullopt};
  if (op_.group_axes) scores.group_axes = op_.group_axes(call_, output_);
  const Plausibility p = judge_scores(scores, Scoring::first_failure);
  if (!p.plausible) return std::nullopt;
  Verdict v;
  v.rung = Rung::rounding;
  v.excess = tally_.excess;
  v.unproven_elements = tally_.unproven;
  v.unproven = v.unproven_elements > 0;
  v.profile = profile_.name;
  v.explanation = explanation_;
  v.elements = got_.size();
  v.counts[static_cast<std::size_t>(Rung::exact)] = tally_.exact;
  v.counts[static_cast<std::size_t>(Rung::rounding)] = got_.size() - tally_.exact;
  v.z_rms = p.rms;
  v.z_mean = p.mean;
  v.z_max = p.max;
  v.z_rms_limit = p.rms_limit;
  v.z_max_limit = p.max_limit;
  v.worst = {static_cast<std::int64_t>(worst),
             unravel(static_cast<std::int64_t>(worst), got_.shape()),
             doubles[worst],
             tally_.at.centre,
             tally_.at.radius,
             tally_.at.deviation};
  if (with_figures_) v.figures = classic_figures(doubles, scores.centre, kF32);
  return v;
}

}  // namespace opdiff
