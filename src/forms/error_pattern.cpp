#include "forms/error_pattern.h"

#include <algorithm>
#include <cmath>

namespace opdiff {
namespace {

struct Element {
  std::int64_t index;
  double got, expected, floor;
  double error() const { return got - expected; }
};

Shape coordinates(std::int64_t index, const Shape& shape) {
  Shape result(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    result[d] = index % shape[d];
    index /= shape[d];
  }
  return result;
}

// Does one number c explain the whole tensor: got = c expected, or got = expected + c? The elements know c as well as
// their floors allow; the wrong one that knows it best decides.
bool explained(const std::vector<Element>& all, const std::vector<Element>& wrong, bool scaled) {
  const Element* best = nullptr;
  const auto spread = [&](const Element& e) {
    return scaled ? (e.expected != 0 ? e.floor / std::fabs(e.expected) : INFINITY) : e.floor;
  };
  for (const Element& e : wrong)
    if (!best || spread(e) < spread(*best)) best = &e;
  if (!std::isfinite(spread(*best))) return false;
  const double c = scaled ? best->got / best->expected : best->error();
  const double uncertainty = kPatternLimit * spread(*best);
  return std::all_of(all.begin(), all.end(), [&](const Element& e) {
    const double left = scaled ? e.got - c * e.expected : e.error() - c;
    const double allowed = kPatternLimit * e.floor + uncertainty * (scaled ? std::fabs(e.expected) : 1);
    return std::fabs(left) <= allowed * std::max(1.0, scaled ? std::fabs(c) : 1.0);
  });
}

double share(std::size_t part, std::int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

}  // namespace

ErrorPatterns error_patterns(const Tensor& got, const Tensor& expected, const std::vector<double>& floor,
                             double unit_roundoff) {
  if (got.shape() != expected.shape() || got.dtype() != expected.dtype()) return {"wrong shape"};
  const std::vector<double> y = got.to_doubles(), c = expected.to_doubles();
  std::vector<Element> all, wrong;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const bool same = y[i] == c[i] || (std::isnan(y[i]) && std::isnan(c[i]));
    if (!std::isfinite(y[i]) || !std::isfinite(c[i])) {
      if (!same) return {"non-finite"};
      continue;
    }
    const double own = std::max(floor[i], unit_roundoff * std::fabs(y[i]));
    all.push_back({static_cast<std::int64_t>(i), y[i], c[i], own});
    if (std::fabs(y[i] - c[i]) > kPatternLimit * floor[i]) wrong.push_back(all.back());
  }
  if (wrong.empty()) return {"rounded", "scaled", "shifted", "scattered"};  // too small to tell
  const auto count = static_cast<double>(wrong.size());
  ErrorPatterns patterns;
  double odds = 1;  // of the likeliest specific pattern, had the errors no pattern
  const auto note = [&](const std::string& name, double by_chance) {
    patterns.insert(name);
    odds = std::min(odds, by_chance);
  };
  // Two numbers agree by chance with odds of about 1/8 within the floors that matter here.
  const double elements = static_cast<double>(all.size());
  if (explained(all, wrong, true)) note("scaled", std::pow(8, 1 - elements));
  if (explained(all, wrong, false)) note("shifted", std::pow(8, 1 - elements));
  if (wrong.size() == 1) note("one element", 2 / static_cast<double>(y.size() + 1));
  if (std::all_of(wrong.begin(), wrong.end(), [](const Element& e) { return e.got == 0; }))
    note("zeros", std::pow(8, -count));
  const Shape& shape = got.shape();
  std::vector<Shape> at;
  for (const Element& e : wrong) at.push_back(coordinates(e.index, shape));
  for (std::size_t d = 0; d < shape.size(); ++d) {
    // An axis of extent 1 has no other slice: it fits, and says nothing.
    if (std::all_of(at.begin(), at.end(), [&](const Shape& place) { return place[d] == at[0][d]; }))
      note(fmt::format("one slice of axis {}", d), std::pow(static_cast<double>(shape[d]), 1 - count));
  }
  if (shape.size() > 2) {  // spatial axes
    const auto on_border = [&](const Shape& place) {
      for (std::size_t d = 2; d < shape.size(); ++d)
        if (place[d] == 0 || place[d] == shape[d] - 1) return true;
      return false;
    };
    double inside = 1;
    for (std::size_t d = 2; d < shape.size(); ++d)
      inside *= static_cast<double>(std::max<std::int64_t>(shape[d] - 2, 0)) / static_cast<double>(shape[d]);
    if (inside > 0 && std::all_of(at.begin(), at.end(), on_border)) note("border", std::pow(1 - inside, count));
  }
  std::vector<double> a, b;
  for (const Element& e : wrong) {
    a.push_back(e.got);
    b.push_back(e.expected);
  }
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  bool moved = wrong.size() > 1;
  for (std::size_t i = 0; moved && i < a.size(); ++i) moved = std::fabs(a[i] - b[i]) <= kPatternLimit * floor[0];
  if (moved) note("moved", std::pow(8, -count));
  if (share(wrong.size(), got.size()) > 0.5 && std::all_of(wrong.begin(), wrong.end(), [](const Element& e) {
        return std::fabs(e.error()) < 0x1p-4 * std::fabs(e.expected) + 64 * e.floor;
      }))
    note("rounded", 1);
  if (patterns.empty() || odds > kPatternOdds) patterns.insert("scattered");
  return patterns;
}

}  // namespace opdiff
