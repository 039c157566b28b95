#include <limits>
#include <numeric>

#include "ops/axes.h"
#include "ops/gather.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

// One axis of the result: element i is element start + i step of the input.
struct Range {
  std::int64_t start = 0, step = 1, count = 0;
};

struct Slice {
  static constexpr std::string_view kName = "Slice";
  static constexpr std::string_view kDocumentation = R"(X[start : end : step] along each of `axes`, as numpy slices

starts, ends and axes are attributes until opset 9 (steps are 1) and int32 or int64 inputs from 10 on. Negative starts and ends count
from the end; then start is clamped to [0, n] and end to [0, n], with a negative step to [0, n - 1] and [-1, n - 1]: INT_MAX and INT_MIN
mean "to the end". An empty result is right. A step of 0 and a repeated axis are refused.)";
  static constexpr Arity kInputs{1, 5};
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"starts", AttributeKind::integers, "required; one per axis", 1, 9},
            {"ends", AttributeKind::integers, "required; one per axis, exclusive", 1, 9},
            {"axes", AttributeKind::integers, "distinct; default: the first axes", 1, 9}};
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_TRY(const std::optional<std::vector<Range>> axes, ranges(call));
    if (!axes) return Types{{call.dtype(0), std::nullopt}};
    Shape shape;
    for (const Range& r : *axes) shape.push_back(r.count);
    return Types{{call.dtype(0), shape}};
  }

  static Movement movement(const Call& call) {
    const std::vector<Range> axes = **ranges(call);
    const Shape dense = strides_of(call.shape(0));
    Shape shape, strides;
    std::int64_t first = 0;
    for (std::size_t d = 0; d < axes.size(); ++d) {
      shape.push_back(axes[d].count);
      // A step beyond the axis is taken at most once: only what is read must be in range.
      strides.push_back(axes[d].count > 1 ? dense[d] * axes[d].step : 0);
      first += dense[d] * axes[d].start;
    }
    return {shape, gather(shape, strides, first), {}, {}};
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const Shape shape = c.shape_or_empty(1, 5, 9);
    const std::int64_t rank = std::ssize(shape);
    Shape all(shape.size()), starts, ends, steps;
    std::iota(all.begin(), all.end(), std::int64_t{0});
    const bool in_order = rng.chance(0.3);
    for (std::size_t k = all.size(); k-- > 1 && !in_order;)
      std::swap(all[k], all[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(k)))]);
    Shape axes(all.begin(), all.begin() + rng.integer(1, rank));
    const bool has_steps = c.opset() >= 10 && rng.chance(0.7);
    for (std::int64_t& axis : axes) {
      const std::int64_t n = shape[static_cast<std::size_t>(axis)];
      static constexpr std::int64_t kSteps[] = {1, 1, 2, 3, -1, -1, -2, 100, -100};
      steps.push_back(has_steps ? rng.pick(kSteps) : 1);
      std::int64_t start = rng.integer(0, n), end = rng.integer(0, n);
      if ((start > end) != (steps.back() < 0) && rng.chance(0.9)) std::swap(start, end);  // mostly not empty
      if (rng.chance(0.2)) start = steps.back() < 0 ? n + 3 : 0;
      if (rng.chance(0.2)) end = steps.back() < 0 ? kFarLeft : kFarRight;
      if (rng.chance(0.3) && start < n) start -= n;
      if (rng.chance(0.3) && end >= 0 && end < n) end -= n;
      starts.push_back(start);
      ends.push_back(end);
      if (c.opset() >= 10 && rng.chance(0.3)) axis -= rank;
    }
    const bool has_axes = !in_order || rng.chance(0.5);
    std::vector<std::optional<Tensor>> inputs{c.elements(shape)};
    if (c.opset() >= 10) {
      const DType index = rng.chance(0.8) ? DType::i64 : DType::i32;
      const auto list = [&](const Shape& values) { return Tensor::from_int64s(index, {std::ssize(values)}, values); };
      inputs.push_back(list(starts));
      inputs.push_back(list(ends));
      if (has_axes || has_steps) inputs.push_back(has_axes ? std::optional(list(axes)) : std::nullopt);
      if (has_steps) inputs.push_back(list(steps));
    }
    Sample s = c.make(kName, std::move(inputs));
    if (c.opset() < 10) {
      s.node.attributes = {{"starts", starts}, {"ends", ends}};
      if (has_axes) s.node.attributes["axes"] = axes;
    }
    const bool weights = rng.chance(0.8);
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = weights && s.inputs[k];
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {4, 5});
    const auto refuse = [&](const Shape& starts, const Shape& ends, const Shape& axes, const Shape& steps,
                            std::string why) {
      return refused_sample(kName,
                            {x, SampleContext::int64s(starts), SampleContext::int64s(ends), SampleContext::int64s(axes),
                             SampleContext::int64s(steps)},
                            {}, std::move(why));
    };
    return {refuse({0}, {2}, {0}, {0}, "steps"),
            refuse({0}, {2}, {2}, {1}, "axes"),
            refuse({0, 0}, {2, 2}, {1, -1}, {1, 1}, "twice"),
            refuse({0}, {2, 3}, {0}, {1}, "ends"),
            refuse({0}, {2}, {0, 1}, {1}, "axes"),
            refuse({0}, {2}, {0}, {1, 1}, "steps"),
            refuse({0, 0, 0}, {1, 1, 1}, {0, 1, 2}, {1, 1, 1}, "axes"),
            refused_sample(kName, {x}, {}, "starts"),
            refused_sample(kName, {x}, {{"starts", Shape{0}}, {"ends", Shape{1}}}, "unknown attribute"),
            refused_sample(kName, {x}, {{"starts", Shape{0}}}, "ends", 9),
            refused_sample(kName, {x, Tensor::zeros(DType::f32, {1}), SampleContext::int64s({1})}, {}, "type")};
  }

 private:
  static constexpr std::int64_t kFarRight = std::numeric_limits<std::int32_t>::max();
  static constexpr std::int64_t kFarLeft = std::numeric_limits<std::int32_t>::min();

  static Range range(std::int64_t n, std::int64_t start, std::int64_t end, std::int64_t step) {
    if (start < 0) start += n;
    if (end < 0) end += n;
    if (step > 0) {
      start = std::clamp<std::int64_t>(start, 0, n);
      end = std::clamp<std::int64_t>(end, 0, n);
      return {start, step, end > start ? (end - start - 1) / step + 1 : 0};
    }
    start = std::min(std::max<std::int64_t>(start, 0), n - 1);
    end = std::min(std::max<std::int64_t>(end, -1), n - 1);
    if (end >= start) return {std::max<std::int64_t>(start, 0), step, 0};
    // -step overflows for the least integer, where one element is all there is.
    const std::int64_t stride = step == std::numeric_limits<std::int64_t>::min() ? n : -step;
    return {start, -stride, (start - end - 1) / stride + 1};
  }

  // One range per axis of X; nullopt: a value is not known yet.
  static Expected<std::optional<std::vector<Range>>> ranges(const Call& call) {
    OPDIFF_TRY(const IntegerList starts, integer_list(call, "starts", 1, 10));
    OPDIFF_TRY(const IntegerList ends, integer_list(call, "ends", 2, 10));
    OPDIFF_TRY(IntegerList axes, integer_list(call, "axes", 3, 10));
    OPDIFF_TRY(IntegerList steps, integer_list(call, "steps", 4, 10));
    if (!starts.given) return make_error("'starts' is missing");
    if (!ends.given) return make_error("'ends' is missing");
    if (!starts.known || !ends.known || !axes.known || !steps.known) return std::nullopt;
    const std::size_t n = starts.values.size();
    if (!axes.given)
      for (std::size_t k = 0; k < n; ++k) axes.values.push_back(static_cast<std::int64_t>(k));
    if (!steps.given) steps.values.assign(n, 1);
    const std::pair<const char*, const IntegerList*> lists[] = {{"ends", &ends}, {"axes", &axes}, {"steps", &steps}};
    for (const auto& [name, list] : lists)
      if (list->values.size() != n)
        return make_error("'{}' is {}, but 'starts' {} has {} numbers", name, to_string(list->values),
                          to_string(starts.values), n);
    OPDIFF_TRY(const std::vector<int> positive, normalise_axes(axes.values, call.rank(0)));
    std::vector<Range> result;
    for (const std::int64_t extent : call.shape(0)) result.push_back({0, 1, extent});
    for (std::size_t k = 0; k < n; ++k) {
      if (steps.values[k] == 0) return make_error("'steps' is {}: a step cannot be 0", to_string(steps.values));
      Range& r = result[static_cast<std::size_t>(positive[k])];
      r = range(r.count, starts.values[k], ends.values[k], steps.values[k]);
    }
    return result;
  }
};

}  // namespace

const MetaOperator& slice() {
  static const MetaOperator op = describe<Slice>();
  return op;
}

}  // namespace opdiff::operators
