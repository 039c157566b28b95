#include <algorithm>

#include "ops/axes.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Squeeze {
  static constexpr std::string_view kName = "Squeeze";
  static constexpr std::string_view kDocumentation =
      R"(X without the dimensions `axes`, which must be 1; without `axes`, without every dimension of 1

`axes` is an attribute until opset 12 and an int64 input from 13 on. No element moves.)";
  static constexpr Arity kInputs{1, 2};
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"axes", AttributeKind::integers, "in [-rank, rank), distinct; default: every dimension of 1", 1, 12}};
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_TRY(const IntegerList axes, integer_list(call, "axes", 1, 13));
    if (!axes.known) return Types{{call.dtype(0), std::nullopt}};
    OPDIFF_TRY(Shape shape, squeezed(call, axes));
    return Types{{call.dtype(0), std::move(shape)}};
  }

  static Movement movement(const Call& call) {
    return {*squeezed(call, *integer_list(call, "axes", 1, 13)), {}, {}, {}};
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    Shape shape = c.shape_or_empty(0, 5, 6);
    Shape axes;
    const std::int64_t rank = std::ssize(shape);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (rng.chance(0.4)) shape[d] = 1;
      if (shape[d] == 1 && rng.chance(0.6)) axes.push_back(static_cast<std::int64_t>(d));
    }
    if (rng.chance(0.3)) std::reverse(axes.begin(), axes.end());
    std::vector<std::optional<Tensor>> inputs{c.elements(shape)};
    if (c.opset() >= 11)
      for (std::int64_t& axis : axes)
        if (rng.chance(0.3)) axis -= rank;
    const bool given = !axes.empty() && rng.chance(0.85);
    if (given && c.opset() >= 13) inputs.push_back(SampleContext::int64s(axes));
    Sample s = c.make(kName, std::move(inputs));
    if (given && c.opset() < 13) s.node.attributes["axes"] = axes;
    if (s.initialiser.size() > 1) s.initialiser[1] = rng.chance(0.8);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {1, 3, 1});
    const auto refuse = [&](const Shape& axes, std::string why) {
      return refused_sample(kName, {x, SampleContext::int64s(axes)}, {}, std::move(why));
    };
    return {refuse({1}, "axis 1"),
            refuse({3}, "axes"),
            refuse({0, 0}, "twice"),
            refuse({0, -3}, "twice"),
            refused_sample(kName, {x}, {{"axes", Shape{0}}}, "axes", 13),
            refused_sample(kName, {x, SampleContext::int64s({0})}, {}, "from opset 13", 12),
            refused_sample(kName, {x, Tensor::zeros(DType::f32, {1})}, {}, "type")};
  }

 private:
  static Expected<Shape> squeezed(const Call& call, const IntegerList& list) {
    const Shape& x = call.shape(0);
    OPDIFF_TRY(const std::vector<int> axes, normalise_axes(list.values, call.rank(0)));
    for (const int axis : axes)
      if (x[static_cast<std::size_t>(axis)] != 1)
        return make_error("'axes' is {}, but axis {} of X {} is not 1", to_string(list.values), axis, to_string(x));
    Shape shape;
    for (std::size_t d = 0; d < x.size(); ++d)
      if (list.given ? !contains(axes, static_cast<std::int64_t>(d)) : x[d] != 1) shape.push_back(x[d]);
    return shape;
  }
};

}  // namespace

const MetaOperator& squeeze() {
  static const MetaOperator op = describe<Squeeze>();
  return op;
}

}  // namespace opdiff::operators
