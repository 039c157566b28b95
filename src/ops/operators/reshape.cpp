#include <algorithm>

#include "ops/axes.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Reshape {
  static constexpr std::string_view kName = "Reshape";
  static constexpr std::string_view kDocumentation =
      R"(X with another shape of as many elements, in the same row-major order

`shape` [r] (int64): 0 copies the dimension of X at that place, unless allowzero = 1 (opset 14), where it means no elements; one -1 is
whatever remains. Refused: a -1 that any number would satisfy (another dimension is 0), a 0 beyond X's rank.)";
  static constexpr Arity kInputs{2, 2};
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"allowzero", AttributeKind::integer, "1: a 0 in `shape` is a dimension of 0; default 0: it copies", 14}};
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_TRY(const IntegerList shape, integer_list(call, "shape", 1, 0));
    const std::int64_t allowzero = call.integer("allowzero", 0);
    if (allowzero != 0 && allowzero != 1) return make_error("attribute 'allowzero' is {}, expected 0 or 1", allowzero);
    if (call.dtype(1) != DType::i64)
      return make_error("'shape' has type {}, expected int64", dtype_name(call.dtype(1)));
    if (!shape.known) return Types{{call.dtype(0), std::nullopt}};
    OPDIFF_TRY(Shape resolved, resolve(call, shape.values));
    return Types{{call.dtype(0), std::move(resolved)}};
  }

  static Movement movement(const Call& call) { return {*resolve(call, call.tensor(1)->to_int64s()), {}, {}, {}}; }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const Shape from = c.shape_or_empty(0, 5, 6);
    const bool empty = element_count(from) == 0;
    // Any factorisation of the count, in as many dimensions as wanted.
    Shape to;
    std::int64_t left = element_count(from);
    const std::int64_t rank = rng.integer(left == 1 ? 0 : 1, 5);
    for (std::int64_t d = 0; d + 1 < rank && !empty; ++d) {
      std::vector<std::int64_t> divisors;
      for (std::int64_t k = 1; k <= left; ++k)
        if (left % k == 0) divisors.push_back(k);
      to.push_back(rng.pick(divisors));
      left /= to.back();
    }
    if (rank > 0) to.push_back(left);
    Shape asked = to;
    if (!empty) {
      for (std::size_t d = 0; d < to.size() && d < from.size(); ++d)
        if (to[d] == from[d] && rng.chance(0.5)) asked[d] = 0;
      if (!to.empty() && rng.chance(0.5)) asked[static_cast<std::size_t>(rng.integer(0, std::ssize(to) - 1))] = -1;
    } else {
      asked = from;
      std::reverse(asked.begin(), asked.end());
    }
    const bool zeros = std::find(asked.begin(), asked.end(), 0) != asked.end();
    Sample s = c.make(kName, {c.elements(from), SampleContext::int64s(asked)});
    s.initialiser[1] = rng.chance(0.8);
    if (empty) {
      s.opset = std::max(s.opset, 14);
      s.node.attributes["allowzero"] = std::int64_t{1};
    } else if (s.opset >= 14 && (rng.chance(0.3))) {
      s.node.attributes["allowzero"] = std::int64_t{zeros ? 0 : 1};
    }
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3}), none = Tensor::zeros(DType::f32, {0, 3});
    const auto refuse = [&](const Tensor& data, const Shape& shape, std::string why) {
      return refused_sample(kName, {data, SampleContext::int64s(shape)}, {}, std::move(why));
    };
    return {refuse(x, {4, -1}, "shape"),
            refuse(x, {5}, "shape"),
            refuse(x, {-1, -1}, "-1"),
            refuse(x, {-2, 3}, "-2"),
            refuse(x, {2, 3, 0}, "0"),
            refuse(none, {0, -1}, "-1"),
            refuse(x, {std::int64_t{1} << 40, std::int64_t{1} << 40}, "shape"),
            refused_sample(kName, {none, SampleContext::int64s({0, -1})}, {{"allowzero", std::int64_t{1}}}, "-1"),
            refused_sample(kName, {x, SampleContext::int64s({6})}, {{"allowzero", std::int64_t{0}}}, "allowzero", 13),
            refused_sample(kName, {x, SampleContext::int64s({6})}, {{"allowzero", std::int64_t{2}}}, "allowzero"),
            refused_sample(kName, {x, Tensor::zeros(DType::i32, {1})}, {}, "type"),
            refused_sample(kName, {x, Tensor::zeros(DType::i64, {1, 1})}, {}, "dimension"),
            refused_sample(kName, {x}, {}, "inputs")};
  }

 private:
  static Expected<Shape> resolve(const Call& call, const std::vector<std::int64_t>& asked) {
    const Shape& x = call.shape(0);
    const bool copies = call.integer("allowzero", 0) == 0;
    Shape result = asked;
    std::optional<std::size_t> open;
    for (std::size_t d = 0; d < asked.size(); ++d) {
      if (asked[d] < -1) return make_error("'shape' is {}: {} is no dimension", to_string(asked), asked[d]);
      if (asked[d] == -1) {
        if (open) return make_error("'shape' is {}: only one dimension can be -1", to_string(asked));
        open = d;
        result[d] = 1;
      } else if (asked[d] == 0 && copies) {
        if (d >= x.size())
          return make_error("'shape' is {}: the 0 at place {} has no dimension to copy from X {}", to_string(asked), d,
                            to_string(x));
        result[d] = x[d];
      }
    }
    const auto rest = checked_element_count(result);
    const std::int64_t count = element_count(x);
    if (!rest) return make_error("'shape' is {}: {}", to_string(asked), rest.error().message);
    if (open) {
      if (*rest == 0)
        return make_error("'shape' is {}: -1 beside a dimension of 0 could be any number", to_string(asked));
      result[*open] = count / *rest;
    }
    if (*rest * (open ? result[*open] : 1) != count)
      return make_error("'shape' is {}, but X {} has {} elements", to_string(asked), to_string(x), count);
    return result;
  }
};

}  // namespace

const MetaOperator& reshape() {
  static const MetaOperator op = describe<Reshape>();
  return op;
}

}  // namespace opdiff::operators
