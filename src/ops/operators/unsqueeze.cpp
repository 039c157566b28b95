#include <algorithm>
#include <numeric>

#include "ops/axes.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Unsqueeze {
  static constexpr std::string_view kName = "Unsqueeze";
  static constexpr std::string_view kDocumentation =
      R"(X with dimensions of 1 put in, so that they are the axes `axes` of the result

`axes` is an attribute until opset 12 and an int64 input from 13 on, in any order. No element moves.)";
  static constexpr Arity kInputs{1, 2};
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"axes", AttributeKind::integers, "required; distinct, in [-r, r) for the result's rank r", 1, 12}};
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_TRY(const IntegerList axes, integer_list(call, "axes", 1, 13));
    if (!axes.given) return make_error("'axes' is missing");
    if (!axes.known) return Types{{call.dtype(0), std::nullopt}};
    OPDIFF_TRY(Shape shape, expanded(call, axes));
    return Types{{call.dtype(0), std::move(shape)}};
  }

  static Movement movement(const Call& call) {
    return {*expanded(call, *integer_list(call, "axes", 1, 13)), {}, {}, {}};
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const Shape shape = c.shape_or_empty(0, 4, 6);
    const std::int64_t rank = std::ssize(shape) + rng.integer(1, 3);
    Shape all(static_cast<std::size_t>(rank));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    for (std::size_t k = all.size(); k-- > 1;)
      std::swap(all[k], all[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(k)))]);
    Shape axes(all.begin(), all.begin() + (rank - std::ssize(shape)));
    if (c.opset() >= 11)
      for (std::int64_t& axis : axes)
        if (rng.chance(0.3)) axis -= rank;
    std::vector<std::optional<Tensor>> inputs{c.elements(shape)};
    if (c.opset() >= 13) inputs.push_back(SampleContext::int64s(axes));
    Sample s = c.make(kName, std::move(inputs));
    if (c.opset() < 13) s.node.attributes["axes"] = axes;
    if (s.initialiser.size() > 1) s.initialiser[1] = rng.chance(0.8);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    const auto refuse = [&](const Shape& axes, std::string why) {
      return refused_sample(kName, {x, SampleContext::int64s(axes)}, {}, std::move(why));
    };
    return {refuse({3}, "axes"),
            refuse({-4}, "axes"),
            refuse({0, 0}, "twice"),
            refuse({0, -4}, "twice"),
            refused_sample(kName, {x}, {}, "missing"),
            refused_sample(kName, {x}, {}, "missing", 12),
            refused_sample(kName, {x}, {{"axes", Shape{0}}}, "axes", 13),
            refused_sample(kName, {x, SampleContext::int64s({0})}, {}, "from opset 13", 12)};
  }

 private:
  static Expected<Shape> expanded(const Call& call, const IntegerList& list) {
    const std::int64_t rank = call.rank(0) + std::ssize(list.values);
    OPDIFF_TRY(const std::vector<int> axes, normalise_axes(list.values, rank));
    Shape shape;
    auto next = call.shape(0).begin();
    for (std::int64_t d = 0; d < rank; ++d) shape.push_back(contains(axes, d) ? 1 : *next++);
    return shape;
  }
};

}  // namespace

const MetaOperator& unsqueeze() {
  static const MetaOperator op = describe<Unsqueeze>();
  return op;
}

}  // namespace opdiff::operators
