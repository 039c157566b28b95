#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Identity {
  static constexpr std::string_view kName = "Identity";
  static constexpr std::string_view kDocumentation = R"(Y = X, bit for bit

Any type and shape. NaN and the sign of zero are kept.)";
  static constexpr TypeSet kTypes = kAllTypes;

  static Expected<Types> infer(const Call& call) { return Types{{call.dtype(0), call.shape(0)}}; }
  static Movement movement(const Call& call) { return {call.shape(0), {}, {}, {}}; }

  static Sample sample(SampleContext& c) { return c.make(kName, {c.elements(c.shape_or_empty(0, 5))}); }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2});
    return {refused_sample(kName, {x, x}, {}, "inputs"),
            refused_sample(kName, {x}, {{"axis", std::int64_t{0}}}, "axis")};
  }
};

}  // namespace

const MetaOperator& identity() {
  static const MetaOperator op = describe<Identity>();
  return op;
}

}  // namespace opdiff::operators
