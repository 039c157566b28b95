#include "forms/pooling.h"

namespace opdiff {
namespace {

bool padding_counts(const Parameters& p) { return p.at("pad") == 0 || p.at("include_pad") == 1; }

}  // namespace

std::string average_pool(SideBuilder& side, const std::string& x, const WindowGeometry& g) {
  auto attributes = g.pool_attributes();
  if (g.pad > 0) attributes["count_include_pad"] = std::int64_t{1};
  return side.node("AveragePool", {x}, attributes);
}

std::vector<ParameterSpec> average_pool_parameters() {
  std::vector<ParameterSpec> result = pool_parameters();
  result.push_back({"include_pad", "whether padding counts in the divisor", 0, 1, 1});
  return result;
}

std::vector<Condition> average_pool_conditions() {
  return {{"padding that counts (include_pad=1), or none", &padding_counts}, kPadsBelowKernel, kWindowFits};
}

std::vector<FormRegion> average_pool_regions() {
  return {{"no padding", {{"pad", 0}, {"kernel", 2}}},
          {"padding that counts", {{"pad", 1}, {"include_pad", 1}, {"kernel", 3}}},
          {"windows apart", {{"kernel", 2}, {"stride", 3}}},
          {"one element", {{"kernel", 1}, {"pad", 0}}}};
}

}  // namespace opdiff
