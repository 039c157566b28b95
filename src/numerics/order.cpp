#include "numerics/order.h"

#include <numeric>
#include <vector>

#include "base/rng.h"

namespace opdiff {
namespace {

struct RoundToF32 {
  double operator()(double x) const { return static_cast<double>(static_cast<float>(x)); }
};
struct RoundTo {
  const Format& format;
  double operator()(double x) const { return round_to(x, format); }
};

template <class Round>
double pairwise(const Round& round, std::span<const double> terms) {
  if (terms.empty()) return 0;
  if (terms.size() == 1) return terms[0];
  const std::size_t half = terms.size() / 2;
  return round(pairwise(round, terms.first(half)) + pairwise(round, terms.subspan(half)));
}

template <class Round>
double sum_with(const Round& round, std::span<const double> a, std::span<const double> b, const SumOrder& order) {
  const std::size_t n = a.size();
  const auto product = [&](std::size_t k) { return b.empty() ? a[k] : a[k] * b[k]; };
  if (order.kind == SumOrder::Kind::wide) {
    double total = 0;
    for (std::size_t k = 0; k < n; ++k) total += product(k);
    return round(total);
  }
  if (order.kind == SumOrder::Kind::pairwise) {
    std::vector<double> terms(n);
    for (std::size_t k = 0; k < n; ++k) terms[k] = round(product(k));
    return pairwise(round, terms);
  }
  std::vector<std::size_t> visit;
  if (order.kind == SumOrder::Kind::shuffled) {
    visit.resize(n);
    std::iota(visit.begin(), visit.end(), std::size_t{0});
    Rng rng(order.seed, "order", n);
    for (std::size_t k = n; k > 1; --k)
      std::swap(visit[k - 1], visit[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(k) - 1))]);
  }
  const std::size_t lanes =
      order.kind == SumOrder::Kind::lanes ? static_cast<std::size_t>(std::max(order.lanes, 1)) : 1;
  double one = 0;  // most sums are short and have one lane
  std::vector<double> several(lanes > 1 ? lanes : 0);
  const std::span<double> running = lanes > 1 ? std::span(several) : std::span(&one, 1);
  for (std::size_t k = 0, lane = 0; k < n; ++k) {
    const std::size_t index = order.kind == SumOrder::Kind::reversed ? n - 1 - k : visit.empty() ? k : visit[k];
    double& sum = running[lane];
    const double p = product(index);
    sum = round(sum + (order.fused ? p : round(p)));
    lane = lane + 1 == lanes ? 0 : lane + 1;
  }
  return pairwise(round, running);
}

}  // namespace

double sum_in_order(std::span<const double> a, std::span<const double> b, const SumOrder& order, const Format& format) {
  return format == kF32 ? sum_with(RoundToF32(), a, b, order) : sum_with(RoundTo{format}, a, b, order);
}

}  // namespace opdiff
