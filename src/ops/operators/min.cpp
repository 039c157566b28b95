#include "ops/variadic_extremum.h"

namespace opdiff::operators {
namespace {

struct Min : VariadicExtremum<Smallest> {
  static constexpr std::string_view kName = "Min";
  static constexpr std::string_view kDocumentation =
      R"(Y = the smallest of the inputs, elementwise, over shapes that broadcast (numpy's rule, from opset 8)

Any number of inputs. Nothing is rounded; integers from opset 12. NaN propagates (here, numpy, torch), or is ignored, or what becomes of it
depends on its place among the inputs (processors' own instructions return their second operand): conventions, as ONNX says nothing.
Zeros of both signs are equal.)";
  static constexpr std::string_view kGradientDocumentation =
      R"(The cotangent goes to the input that wins, summed where that was broadcast. Among equal inputs the first takes all (here); the last, or
an equal share for each, or half for each as the inputs are gone through two by two (torch) are conventions: every convex combination is
a subgradient. A NaN wins; that it passes the cotangent to both of a pair (torch), or to none, is a convention.)";

  static Sample sample(SampleContext& c) { return sample_inputs(c, kName); }
  static std::vector<Sample> refused() { return refused_inputs(kName); }
};

}  // namespace

const MetaOperator& min() {
  static const MetaOperator op = describe<Min>();
  return op;
}

}  // namespace opdiff::operators
