#include <algorithm>

#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Flatten {
  static constexpr std::string_view kName = "Flatten";
  static constexpr std::string_view kDocumentation = R"(X [d0, ..., dn] as a matrix [d0 ... d(axis-1), d(axis) ... dn]

No element moves. axis 0 gives one row, axis = rank one column; a scalar becomes [1, 1]. An empty product is 1.)";
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"axis", AttributeKind::integer, "in [-rank, rank] (before opset 11: [0, rank]); default 1"}};
  }

  static Expected<Types> infer(const Call& call) {
    const std::int64_t axis = call.integer("axis", 1), rank = call.rank(0);
    const std::int64_t least = call.opset() < 11 ? 0 : -rank;
    if (axis < least || axis > rank)
      return make_error("attribute 'axis' is {}, outside [{}, {}] for X {}", axis, least, rank,
                        to_string(call.shape(0)));
    return Types{{call.dtype(0), matrix(call)}};
  }

  static Movement movement(const Call& call) { return {matrix(call), {}, {}, {}}; }

  static Sample sample(SampleContext& c) {
    const Shape shape = c.shape_or_empty(0, 5, 6);
    Sample s = c.make(kName, {c.elements(shape)});
    const std::int64_t rank = std::ssize(shape);
    if (c.dtype() == DType::boolean || is_integer(c.dtype())) s.opset = std::max(s.opset, 9);
    if (rank == 0 || c.rng().chance(0.7)) s.node.attributes["axis"] = c.rng().integer(s.opset < 11 ? 0 : -rank, rank);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    return {refused_sample(kName, {x}, {{"axis", std::int64_t{3}}}, "axis"),
            refused_sample(kName, {x}, {{"axis", std::int64_t{-3}}}, "axis"),
            refused_sample(kName, {x}, {{"axis", std::int64_t{-1}}}, "axis", 9),
            refused_sample(kName, {Tensor::zeros(DType::f32, {})}, {}, "axis")};
  }

 private:
  static Shape matrix(const Call& call) {
    const std::int64_t given = call.integer("axis", 1), rank = call.rank(0);
    const std::int64_t axis = given < 0 ? given + rank : given;
    Shape result{1, 1};
    for (std::int64_t d = 0; d < rank; ++d) result[d < axis ? 0 : 1] *= call.shape(0)[static_cast<std::size_t>(d)];
    return result;
  }
};

}  // namespace

const MetaOperator& flatten() {
  static const MetaOperator op = describe<Flatten>();
  return op;
}

}  // namespace opdiff::operators
