#include "ops/reduce_extremum.h"

namespace opdiff::operators {
namespace {

struct ReduceMax : ReduceExtremum<Largest> {
  static constexpr std::string_view kName = "ReduceMax";
  static constexpr std::string_view kDocumentation = R"(Y = the largest element of X over `axes`

No axes: over all, or with noop_with_empty_axes = 1 over none (Y = X). Of an empty set: minus infinity,
the least integer, false. Nothing is rounded; int8 and uint8 from opset 12, bool (or) from 20. NaN propagates (here, numpy, torch), or is
ignored, or what becomes of it depends on its place: conventions, as ONNX says nothing.)";
  static constexpr std::string_view kGradientDocumentation =
      R"(The cotangent of a set goes to its largest element. Among equal ones the first takes all (here); the last, or an equal share for each
(torch), is a convention: every convex combination is a subgradient. A NaN wins; torch's share of it is 0 / 0.)";

  static Sample sample(SampleContext& c) { return sample_sets(c, kName); }
  static std::vector<Sample> refused() { return refused_sets(kName); }
};

}  // namespace

const MetaOperator& reduce_max() {
  static const MetaOperator op = describe<ReduceMax>();
  return op;
}

}  // namespace opdiff::operators
