#include <algorithm>

#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct ShapeOf {
  static constexpr std::string_view kName = "Shape";
  static constexpr std::string_view kDocumentation = R"(The dimensions of X as a vector of int64

From opset 15 only dimensions start to end (exclusive); both may be negative and are clamped to [0, rank]; start >= end gives no
element. The values of X do not matter.)";
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"start", AttributeKind::integer, "first dimension, clamped; default 0", 15},
            {"end", AttributeKind::integer, "behind the last dimension, clamped; default rank", 15}};
  }

  static Expected<Types> infer(const Call& call) {
    return Types{{DType::i64, Shape{static_cast<std::int64_t>(part(call).size())}}};
  }
  static DType output_dtype(const Call&, int) { return DType::i64; }

  static std::vector<Tensor> exact(const Call& call) { return {SampleContext::int64s(part(call))}; }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const Shape shape = c.shape_or_empty(0, 5, 6);
    const std::int64_t rank = std::ssize(shape);
    Sample s = c.make(kName, {c.elements(shape)});
    if (s.opset >= 15 && rng.chance(0.6)) s.node.attributes["start"] = rng.integer(-rank - 2, rank + 2);
    if (s.opset >= 15 && rng.chance(0.6)) s.node.attributes["end"] = rng.integer(-rank - 2, rank + 2);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    return {refused_sample(kName, {x}, {{"start", std::int64_t{0}}}, "start", 14),
            refused_sample(kName, {x}, {{"end", 1.0f}}, "end"), refused_sample(kName, {x, x}, {}, "inputs")};
  }

 private:
  static Shape part(const Call& call) {
    const Shape& shape = call.shape(0);
    const std::int64_t rank = call.rank(0);
    const auto clamped = [&](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank); };
    const std::int64_t start = clamped(call.integer("start", 0)), end = clamped(call.integer("end", rank));
    return start < end ? Shape(shape.begin() + start, shape.begin() + end) : Shape();
  }
};

}  // namespace

const MetaOperator& shape() {
  static const MetaOperator op = describe<ShapeOf>();
  return op;
}

}  // namespace opdiff::operators
