#include "judge/orders.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "numerics/order.h"

namespace opdiff {
namespace {

constexpr std::size_t kElements = 256;
constexpr double kPairwiseDeviations = 8;

struct NamedOrder {
  std::string name;
  std::vector<std::size_t> visit;  // permutation of the terms; empty: index order
  SumOrder order;
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

std::vector<NamedOrder> named_orders(const Shape& extents) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> walks;
  std::vector<int> axes(extents.size());
  std::iota(axes.begin(), axes.end(), 0);
  do {
    std::string name = "axes";
    for (const int a : axes) name += " " + std::to_string(a);
    walks.emplace_back(name, permuted(extents, axes));
  } while (axes.size() <= 4 && std::next_permutation(axes.begin(), axes.end()));
  if (extents.size() > 1)
    for (const std::int64_t block : {8, 16})
      if (extents[0] > block)
        walks.emplace_back("channel blocks of " + std::to_string(block), channel_blocked(extents, block));
  std::vector<NamedOrder> orders;
  for (const auto& [name, visit] : walks)
    for (const int lanes : {1, 2, 4, 8, 16})
      for (const bool fused : {false, true})
        orders.push_back(
            {fmt::format("{}, {} {}{}", name, lanes, lanes == 1 ? "lane" : "lanes", fused ? ", fused" : ""),
             visit,
             {SumOrder::Kind::lanes, lanes, fused, 0}});
  orders.push_back({"pairwise", {}, {SumOrder::Kind::pairwise, 1, false, 0}});
  for (const bool fused : {false, true})
    orders.push_back({fused ? "last to first, fused" : "last to first", {}, {SumOrder::Kind::reversed, 1, fused, 0}});
  // Where neighbours cancel (a ramp), index order has small partial sums and any other order large ones.
  // Enough of them that twice the largest of their errors is beyond 4 of their own deviations.
  const std::uint64_t draws = element_count(extents) <= 2048 ? 32 : 8;
  for (std::uint64_t seed = 1; seed <= draws; ++seed)
    orders.push_back({"a random order", {}, {SumOrder::Kind::shuffled, 1, false, seed}});
  return orders;
}

double emulate(const Reduction& r, const NamedOrder& order, bool bias_first, const Format& format) {
  std::vector<double> a, b;
  if (bias_first) {
    a.push_back(r.bias);
    if (!r.b.empty()) b.push_back(1);
  }
  for (std::size_t k = 0; k < r.a.size(); ++k) {
    const std::size_t index = order.visit.empty() ? k : order.visit[k];
    // An accumulation that starts at the bias holds terms that are scaled already.
    a.push_back(bias_first && r.factor != 1 ? round_to(r.a[index] * r.factor, format) : r.a[index]);
    if (!r.b.empty()) b.push_back(r.b[index]);
  }
  double y = sum_in_order(a, b, order.order, format);
  if (r.factor != 1 && !bias_first) y = round_to(y * r.factor, format);
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

}  // namespace

OrderExplanation explain_by_order(const MetaOperator& op, const Call& call, int output,
                                  std::span<const std::int64_t> elements, std::span<const double> error,
                                  const Format& format) {
  OrderExplanation result;
  if (!op.reduction || elements.empty()) return result;
  std::map<std::string, int> closest;
  std::vector<NamedOrder> orders;
  for (std::size_t i = 0; i < std::min(elements.size(), kElements); ++i) {
    const Reduction r = op.reduction(call, output, elements[i]);
    if (orders.empty()) orders = named_orders(r.extents);
    const double exact = exact_value(r), off = error[static_cast<std::size_t>(elements[i])];
    double largest = 0, nearest = kInfinity;
    const std::string* name = nullptr;
    for (const NamedOrder& order : orders)
      for (const bool bias_first : {false, true}) {
        if (bias_first && (!r.has_bias || r.factor != 1)) continue;
        const double emulated = emulate(r, order, bias_first, format) - exact;
        if (!std::isfinite(emulated)) continue;  // an order that overflows explains no number
        largest = std::max(largest, std::fabs(emulated));
        if (std::fabs(emulated - off) < nearest) {
          nearest = std::fabs(emulated - off);
          name = &order.name;
        }
      }
    if (!name || !(std::fabs(off) <= 2 * largest)) return result;
    ++closest[*name];
    if (std::fabs(off) > kPairwiseDeviations * pairwise_deviation(r, format.unit_roundoff())) result.warn = true;
  }
  result.explained = true;
  result.order = std::max_element(closest.begin(), closest.end(), [](const auto& a, const auto& b) {
                   return a.second < b.second;
                 })->first;
  return result;
}

}  // namespace opdiff
