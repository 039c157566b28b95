#include "judge/orders.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/rng.h"
#include "numerics/order.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

constexpr std::size_t kElements = 256;
constexpr double kPairwiseDeviations = 8;
// An error is explained by orders that make half of it (docs/numerics.md, section 3): the emulated ones are a sample.
constexpr double kTwice = 2;
// The largest of 128 normal errors is less than twice the largest of 8.
constexpr double kDoubled = 2;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Random orders to draw where one costs `work` additions. A fault leaves at the first element or emulation that refutes
// it; what is explained needs enough of them that twice the largest of their errors is beyond what 256 honest elements
// show: of 256 normal errors the largest is 2.8 deviations, of 32 only 2.1. (Honest orders of a ramp, 24 terms summed
// in shuffled order: one in 30,000 tensors is beyond twice the worst of 128.)
std::int64_t random_orders(std::int64_t work) {
  return std::clamp<std::int64_t>((std::int64_t{1} << 19) / std::max<std::int64_t>(work, 1), 8, 256);
}

// Compares errors with those of emulated orders, both in deviations of rounding.
class Tally {
 public:
  // The first `count` elements of those that stand out.
  Tally(const StandsOut& out, std::size_t count)
      : off_(out.scaled(std::min(count, out.elements.size()))),
        largest_(off_.size(), 0),
        nearest_(off_.size(), kInfinity),
        names_(off_.size()) {}

  std::size_t size() const { return off_.size(); }
  double off(std::size_t i) const { return std::fabs(off_[i]); }

  // Order number `order` errs by `error` deviations in element i. An order that overflows explains no number.
  void note(std::size_t order, const std::string& name, std::size_t i, double error) {
    if (!std::isfinite(error)) return;
    if (order >= squares_.size()) squares_.resize(order + 1, 0);
    squares_[order] += static_cast<long double>(error) * error;
    largest_[i] = std::max(largest_[i], std::fabs(error));
    if (const double apart = std::fabs(error - off_[i]); apart < nearest_[i]) {
      nearest_[i] = apart;
      names_[i] = &name;
    }
  }

  bool within(std::size_t i, double factor) const { return names_[i] && off(i) <= factor * largest_[i]; }
  // Every element is within twice its largest emulated error, and one order errs half as much on the whole: the largest
  // of many honest errors reaches twice their root mean square anywhere.
  bool explains() const {
    long double squares = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!within(i, kTwice)) return false;
      squares += static_cast<long double>(off_[i]) * off_[i];
    }
    return std::any_of(squares_.begin(), squares_.end(), [&](long double s) { return squares <= kTwice * kTwice * s; });
  }
  // The order that comes closest to most elements.
  std::string name() const {
    std::map<std::string, int> closest;
    for (const std::string* name : names_)
      if (name) ++closest[*name];
    const auto most = std::max_element(closest.begin(), closest.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == closest.end() ? "" : most->first;
  }

 private:
  std::vector<double> off_, largest_, nearest_;
  std::vector<long double> squares_;  // one element may err by more deviations than double holds the square of
  std::vector<const std::string*> names_;
};

struct NamedOrder {
  std::string name;
  std::vector<std::size_t> visit;  // permutation of the terms; empty: index order
  SumOrder order;
  std::size_t part = 0;  // so many terms at a time are a sum of their own, which is then added; 0: all are one sum
};

// The terms in the order of permuted axes.
std::vector<std::size_t> permuted(const Shape& extents, const std::vector<int>& axes) {
  const Shape strides = strides_of(extents);
  Shape outer;
  for (const int a : axes) outer.push_back(extents[static_cast<std::size_t>(a)]);
  const std::int64_t n = element_count(extents);
  std::vector<std::size_t> visit;
  for (std::int64_t i = 0; i < n; ++i) {
    const Shape at = unravel(i, outer);
    std::int64_t index = 0;
    for (std::size_t d = 0; d < axes.size(); ++d) index += at[d] * strides[static_cast<std::size_t>(axes[d])];
    visit.push_back(static_cast<std::size_t>(index));
  }
  return visit;
}

// The first axis (channels) cut into blocks that are outermost: (c / block, other axes, c % block).
std::vector<std::size_t> channel_blocked(const Shape& extents, std::int64_t block) {
  const std::int64_t channels = extents[0], rest = element_count(extents) / std::max<std::int64_t>(channels, 1);
  std::vector<std::size_t> visit;
  for (std::int64_t first = 0; first < channels; first += block)
    for (std::int64_t r = 0; r < rest; ++r)
      for (std::int64_t c = first; c < std::min(first + block, channels); ++c)
        visit.push_back(static_cast<std::size_t>(c * rest + r));
  return visit;
}

std::vector<NamedOrder> likely_orders(const Shape& extents) {
  struct Walk {
    std::string name;
    std::vector<std::size_t> visit;
    std::int64_t slice;  // terms of one step of the outermost loop
  };
  std::vector<Walk> walks;
  const std::int64_t n = element_count(extents);
  std::vector<int> axes(extents.size());
  std::iota(axes.begin(), axes.end(), 0);
  do {
    std::string name = "axes";
    for (const int a : axes) name += " " + std::to_string(a);
    const std::int64_t outermost = axes.empty() ? 1 : extents[static_cast<std::size_t>(axes[0])];
    walks.push_back({name, permuted(extents, axes), n / std::max<std::int64_t>(outermost, 1)});
  } while (axes.size() <= 4 && std::next_permutation(axes.begin(), axes.end()));
  if (extents.size() > 1)
    for (const std::int64_t block : {8, 16})
      if (extents[0] > block)
        walks.push_back(
            {"channel blocks of " + std::to_string(block), channel_blocked(extents, block), n / extents[0] * block});
  std::vector<NamedOrder> orders;
  for (const auto& [name, visit, slice] : walks)
    for (const int lanes : {1, 2, 4, 8, 16})
      for (const bool fused : {false, true})
        orders.push_back(
            {fmt::format("{}, {} {}{}", name, lanes, lanes == 1 ? "lane" : "lanes", fused ? ", fused" : ""),
             visit,
             {SumOrder::Kind::lanes, lanes, fused, 0}});
  // Kernels that keep a slice's sum in registers and add it to what is in memory.
  for (const auto& [name, visit, slice] : walks)
    for (const bool fused : {false, true})
      if (slice > 1 && slice < n)
        orders.push_back({fmt::format("{}, slice by slice{}", name, fused ? ", fused" : ""),
                          visit,
                          {SumOrder::Kind::sequential, 1, fused, 0},
                          static_cast<std::size_t>(slice)});
  orders.push_back({"pairwise", {}, {SumOrder::Kind::pairwise, 1, false, 0}});
  for (const bool fused : {false, true})
    orders.push_back({fused ? "last to first, fused" : "last to first", {}, {SumOrder::Kind::reversed, 1, fused, 0}});
  return orders;
}

// Where neighbours cancel (a ramp), index order has small partial sums and any other order large ones.
std::vector<NamedOrder> drawn_orders(std::int64_t n) {
  std::vector<NamedOrder> orders;
  const std::int64_t draws = random_orders(n);
  for (std::int64_t draw = 1; draw <= draws; ++draw) {
    std::vector<std::size_t> visit(static_cast<std::size_t>(n));
    std::iota(visit.begin(), visit.end(), std::size_t{0});
    Rng rng(static_cast<std::uint64_t>(draw), "named order");
    for (std::size_t k = visit.size(); k > 1; --k)
      std::swap(visit[k - 1], visit[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(k) - 1))]);
    orders.push_back({"a random order", std::move(visit), {SumOrder::Kind::sequential, 1, false, 0}});
  }
  return orders;
}

// Where the factor and the bias come in (Gemm's alpha and C).
enum class Scaling { result, terms, terms_after_bias };

struct Way {
  const NamedOrder* order;
  Scaling scaling;
};

// The first `start` terms, one at most, begin the sum; the rest is added part by part.
double sum_by_parts(std::span<const double> a, std::span<const double> b, const NamedOrder& order, std::size_t start,
                    const Format& format) {
  double total = start > 0 ? a[0] : 0;
  for (std::size_t k = start; k < a.size(); k += order.part) {
    const std::size_t count = std::min(order.part, a.size() - k);
    const double part = sum_in_order(a.subspan(k, count), b.empty() ? b : b.subspan(k, count), order.order, format);
    total = k == 0 ? part : round_to(total + part, format);
  }
  return total;
}

double emulate(const Reduction& r, const NamedOrder& order, Scaling scaling, const Format& format) {
  const bool bias_first = scaling == Scaling::terms_after_bias, scales = r.factor != 1 && scaling != Scaling::result;
  const std::size_t first = bias_first ? 1 : 0;
  std::vector<double> a(r.a.size() + first, r.bias), b(r.b.empty() ? 0 : r.b.size() + first, 1.0);
  for (std::size_t k = 0; k < r.a.size(); ++k) {
    const std::size_t index = order.visit.empty() ? k : order.visit[k];
    a[k + first] = scales ? round_to(r.a[index] * r.factor, format) : r.a[index];
    if (!r.b.empty()) b[k + first] = r.b[index];
  }
  double y = order.part == 0 ? sum_in_order(a, b, order.order, format) : sum_by_parts(a, b, order, first, format);
  if (r.factor != 1 && !scales) y = round_to(y * r.factor, format);
  if (r.has_bias && !bias_first) y = round_to(y + r.bias, format);
  return r.divisor == 1 ? y : round_to(y / r.divisor, format);
}

double exact_value(const Reduction& r) {
  long double total = 0;
  for (std::size_t k = 0; k < r.a.size(); ++k)
    total += static_cast<long double>(r.a[k]) * (r.b.empty() ? 1.0L : r.b[k]);
  return static_cast<double>((total * r.factor + (r.has_bias ? r.bias : 0)) / r.divisor);
}

// Standard deviation of pairwise summation: each of the log2(n) levels rounds partial sums of its size.
double pairwise_deviation(const Reduction& r, double u) {
  double squares = 0;
  for (std::size_t k = 0; k < r.a.size(); ++k) {
    const double p = r.a[k] * (r.b.empty() ? 1 : r.b[k]);
    squares += p * p;
  }
  const double levels = std::ceil(std::log2(static_cast<double>(std::max<std::size_t>(r.a.size(), 2))));
  const double total = exact_value(r) * r.divisor;
  return u * std::sqrt((squares + total * total) * (levels + 1) / 3) / r.divisor;
}

// Emulates orders of the sums behind the elements that stand out.
class Terms {
 public:
  Terms(const MetaOperator& op, const Call& call, const StandsOut& out, const Format& format)
      : op_(op), call_(call), out_(out), format_(format), tally_(out, kElements), drawn_(tally_.size(), false) {}

  // The likely orders explain nearly all that is honest; drawn ones are many, and asked only where these do not.
  OrderExplanation explain() {
    OrderExplanation result;
    for (std::size_t i = 0; i < tally_.size(); ++i) {
      const Reduction r = reduction(i);
      if (likely_.empty()) likely_ = likely_orders(r.extents);
      note(i, r, likely_, 0);
      if (!tally_.within(i, kTwice)) draw(i, r);
      if (!tally_.within(i, kTwice)) return result;
      if (is_far_off(i, r)) result.warn = true;
    }
    if (!tally_.explains())
      for (std::size_t i = 0; i < tally_.size(); ++i)
        if (!drawn_[i]) draw(i, reduction(i));
    result.explained = tally_.explains();
    result.order = tally_.name();
    return result;
  }

  // By one likely order that makes every element as it is.
  OrderExplanation explain_bit_for_bit() {
    OrderExplanation result;
    std::vector<Way> ways;
    for (std::size_t i = 0; i < tally_.size(); ++i) {
      const Reduction r = reduction(i);
      if (i == 0) {
        likely_ = likely_orders(r.extents);
        for (const NamedOrder& order : likely_)
          for (const Scaling scaling : scalings(r)) ways.push_back({&order, scaling});
      }
      const double got = out_.got.at(out_.elements[i]);
      std::erase_if(ways, [&](const Way& way) {
        return round_to(emulate(r, *way.order, way.scaling, format_), format_of(out_.got.dtype())) != got;
      });
      if (ways.empty()) return {};
      if (is_far_off(i, r)) result.warn = true;
    }
    result.explained = true;
    result.order = ways.front().order->name;
    return result;
  }

 private:
  bool is_far_off(std::size_t i, const Reduction& r) const {
    return tally_.off(i) * out_.scale(i) > kPairwiseDeviations * pairwise_deviation(r, format_.unit_roundoff());
  }

  Reduction reduction(std::size_t i) const { return op_.reduction(call_, out_.output, out_.elements[i]); }

  static std::vector<Scaling> scalings(const Reduction& r) {
    std::vector<Scaling> result{Scaling::result};
    if (r.factor != 1) result.push_back(Scaling::terms);
    if (r.has_bias) result.push_back(Scaling::terms_after_bias);
    return result;
  }

  void draw(std::size_t i, const Reduction& r) {
    if (drawn_orders_.empty()) drawn_orders_ = drawn_orders(element_count(r.extents));
    note(i, r, drawn_orders_, likely_.size());
    drawn_[i] = true;
  }

  void note(std::size_t i, const Reduction& r, const std::vector<NamedOrder>& orders, std::size_t first) {
    const std::vector<Scaling> ways = scalings(r);
    const double exact = exact_value(r);
    std::size_t number = first * ways.size();
    for (const NamedOrder& order : orders)
      for (const Scaling scaling : ways)
        tally_.note(number++, order.name, i, (emulate(r, order, scaling, format_) - exact) / out_.scale(i));
  }

  const MetaOperator& op_;
  const Call& call_;
  const StandsOut& out_;
  const Format& format_;
  Tally tally_;
  std::vector<bool> drawn_;
  std::vector<NamedOrder> likely_, drawn_orders_;
};

class OrderScope {
 public:
  explicit OrderScope(const SumOrder& order) : outer_(working_order()) { working_order() = order; }
  ~OrderScope() { working_order() = outer_; }
  OrderScope(const OrderScope&) = delete;
  OrderScope& operator=(const OrderScope&) = delete;

 private:
  SumOrder outer_;
};

// Softmax, and whatever else has its sums inside: the operator itself, computed in each order.
class WholeOperator {
 public:
  WholeOperator(const MetaOperator& op, const Call& call, const StandsOut& out, std::span<const Profile> profiles)
      : op_(op),
        call_(call),
        out_(out),
        profiles_(profiles),
        tally_(out, out.elements.size()),
        varies_(tally_.size(), 0) {}

  OrderExplanation explain() {
    using Kind = SumOrder::Kind;
    try_order("first to last", {Kind::sequential, 1, false, 0});
    try_order("last to first", {Kind::reversed, 1, false, 0});
    try_order("pairwise", {Kind::pairwise, 1, false, 0});  // of equal terms the two above make the same sum
    if (std::none_of(varies_.begin(), varies_.end(), [](char v) { return v != 0; })) return {};  // nothing is summed
    try_order("first to last, fused", {Kind::sequential, 1, true, 0});
    for (const int lanes : {2, 4, 8, 16}) try_order(fmt::format("{} lanes", lanes), {Kind::lanes, lanes, false, 0});
    std::int64_t work = out_.got.size();
    for (int k = 0; k < call_.input_count(); ++k)
      if (const Tensor* tensor = call_.tensor(k)) work += tensor->size();
    // One draw costs what a few hundred elements' terms cost in Terms.
    const std::int64_t draws = random_orders(work / static_cast<std::int64_t>(kElements));
    for (std::int64_t draw = 1; draw <= draws && !explained(); ++draw) {
      if (draw == 9 && !promising()) break;
      try_order("a random order", {Kind::shuffled, 1, false, static_cast<std::uint64_t>(draw)});
    }
    OrderExplanation result;
    result.explained = explained();
    result.order = tally_.name();
    if (!result.explained) return result;
    // Pairwise summation's deviation, in deviations of rounding: as measured on these elements.
    const double pairwise = std::sqrt(pairwise_squares_ / static_cast<double>(tally_.size()));
    for (std::size_t i = 0; i < tally_.size(); ++i)
      if (tally_.off(i) > kPairwiseDeviations * pairwise) result.warn = true;
    return result;
  }

 private:
  void try_order(const std::string& name, const SumOrder& order) {
    const OrderScope scope(order);
    const std::string& kept = *names_.insert(name).first;
    std::size_t way = 0;
    for (const Profile& profile : profiles_)
      for (int formula = 0; formula < static_cast<int>(op_.formulas.size()); ++formula, ++way) {
        const std::vector<Tensor> outputs = work(op_, call_, profile, formula);
        const Tensor& y = outputs[static_cast<std::size_t>(out_.output)];
        std::vector<double> errors(tally_.size());
        for (std::size_t i = 0; i < errors.size(); ++i) {
          const std::int64_t at = out_.elements[i];
          errors[i] = (out_.error[static_cast<std::size_t>(at)] + (y.at(at) - out_.got.at(at))) / out_.scale(i);
          tally_.note(number_, kept, i, errors[i]);
        }
        ++number_;
        if (way >= first_.size())
          first_.push_back(errors);
        else
          for (std::size_t i = 0; i < errors.size(); ++i) varies_[i] = varies_[i] || errors[i] != first_[way][i];
        if (way == 0 && order.kind == SumOrder::Kind::pairwise)
          for (const double e : errors) pairwise_squares_ += e * e;
      }
  }

  bool promising() const {
    for (std::size_t i = 0; i < tally_.size(); ++i)
      if (!varies_[i] || !tally_.within(i, kDoubled * kTwice)) return false;
    return true;
  }
  // An element that no order changes does not err because of one.
  bool explained() const {
    return tally_.explains() && std::all_of(varies_.begin(), varies_.end(), [](char v) { return v != 0; });
  }

  const MetaOperator& op_;
  const Call& call_;
  const StandsOut& out_;
  std::span<const Profile> profiles_;
  Tally tally_;
  std::vector<char> varies_;
  std::set<std::string> names_;
  std::size_t number_ = 0;
  std::vector<std::vector<double>> first_;  // errors of the first order, for each profile and formula
  double pairwise_squares_ = 0;
};

}  // namespace

double StandsOut::scale(std::size_t i) const {
  const auto at = static_cast<std::size_t>(elements[i]);
  const double size = std::fabs(error[at]);
  return std::isfinite(size / deviation[at]) ? deviation[at] : size;
}

std::vector<double> StandsOut::scaled(std::size_t count) const {
  std::vector<double> off;
  for (std::size_t i = 0; i < count; ++i) off.push_back(error[static_cast<std::size_t>(elements[i])] / scale(i));
  return off;
}

OrderExplanation explain_by_order(const MetaOperator& op, const Call& call, const StandsOut& out,
                                  std::span<const Profile> profiles) {
  if (out.elements.empty()) return {};
  if (op.reduction) return Terms(op, call, out, profiles.front().sum).explain();
  return op.kernels.working ? WholeOperator(op, call, out, profiles).explain() : OrderExplanation();
}

OrderExplanation explain_bit_for_bit(const MetaOperator& op, const Call& call, const StandsOut& out,
                                     std::span<const Profile> profiles) {
  if (out.elements.empty() || !op.reduction) return {};
  return Terms(op, call, out, profiles.front().sum).explain_bit_for_bit();
}

std::string order_that_gives(const MetaOperator& op, const Call& call, int output, const Tensor& got,
                             const Profile& profile) {
  if (!op.kernels.working) return "";
  using Kind = SumOrder::Kind;
  std::vector<std::pair<std::string, SumOrder>> orders;
  for (const bool fused : {false, true}) {
    const std::string_view how = fused ? ", fused" : "";
    orders.push_back({fmt::format("first to last{}", how), {Kind::sequential, 1, fused, 0}});
    orders.push_back({fmt::format("last to first{}", how), {Kind::reversed, 1, fused, 0}});
    orders.push_back({fmt::format("pairwise{}", how), {Kind::pairwise, 1, fused, 0}});
    for (const int lanes : {2, 4, 8, 16})
      orders.push_back({fmt::format("{} lanes{}", lanes, how), {Kind::lanes, lanes, fused, 0}});
  }
  const std::vector<double> y = got.to_doubles();
  for (int formula = 0; formula < static_cast<int>(op.formulas.size()); ++formula) {
    std::optional<Tensor> first;
    for (const auto& [name, order] : orders) {
      const OrderScope scope(order);
      const Tensor made = work(op, call, profile, formula)[static_cast<std::size_t>(output)];
      bool same = made.size() == got.size();
      for (std::int64_t i = 0; i < made.size() && same; ++i) {
        const double value = made.at(i);
        same = y[static_cast<std::size_t>(i)] == value ||
               (std::isnan(y[static_cast<std::size_t>(i)]) && std::isnan(value));
      }
      if (same) return fmt::format("{}, {}", op.formulas[static_cast<std::size_t>(formula)], name);
      if (first && order.kind == Kind::pairwise && made.bit_equal(*first)) break;  // nothing is summed
      if (!first) first = made;
    }
  }
  return "";
}

bool errs_as_emulated(const NamedAlgorithm& algorithm, const Profile& profile, const StandsOut& out) {
  if (out.elements.empty()) return false;
  const auto error = [&](std::int64_t at, int variant) {
    return out.error[static_cast<std::size_t>(at)] + (algorithm.emulate(profile, at, variant) - out.got.at(at));
  };
  constexpr int kLikely = 8, kVariants = 128;
  constexpr std::size_t kEmulated = 64;  // elements: each costs a tile over all channels
  Tally tally(out, kEmulated);
  for (std::size_t i = 0; i < tally.size(); ++i) {
    for (int variant = 0; variant < kVariants; ++variant) {
      if (variant == kLikely && !tally.within(i, kDoubled * kTwice)) return false;
      if (variant >= kLikely && tally.within(i, kTwice)) break;
      tally.note(static_cast<std::size_t>(variant), algorithm.name, i, error(out.elements[i], variant) / out.scale(i));
    }
    // A single element says nothing of a pattern: twice the largest emulated error would excuse a fault of its size.
    if (!tally.within(i, tally.size() == 1 ? 1 : kTwice)) return false;
  }
  if (!tally.explains()) return false;
  // The rest: an algorithm that errs more than this nearly everywhere did not make it.
  std::vector<std::int64_t> rest;
  for (std::size_t i = 0; i < out.deviation.size(); ++i)
    if (out.deviation[i] > 0 && std::isfinite(out.error[i])) rest.push_back(static_cast<std::int64_t>(i));
  constexpr int kBulk = 2;
  const std::size_t step = rest.size() / kEmulated + 1;
  std::vector<double> seen;
  std::vector<std::vector<double>> emulated(kBulk);
  for (std::size_t k = 0; k < rest.size(); k += step) {
    const double d = out.deviation[static_cast<std::size_t>(rest[k])];
    seen.push_back(std::fabs(out.error[static_cast<std::size_t>(rest[k])]) / d);
    for (int variant = 0; variant < kBulk; ++variant)
      emulated[static_cast<std::size_t>(variant)].push_back(std::fabs(error(rest[k], variant)) / d);
  }
  double least = kInfinity;
  for (std::vector<double>& z : emulated) least = std::min(least, median(std::move(z)));
  return least <= kTwice * median(std::move(seen));
}

}  // namespace opdiff
