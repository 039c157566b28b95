#include "ops/axes.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

// One axis of the result, after cropping: `kept` input elements from `first` on, between `before` and `after` new ones.
struct Border {
  std::int64_t first = 0, kept = 0, before = 0, after = 0;
  std::int64_t extent() const { return before + kept + after; }
};

struct Pad {
  static constexpr std::string_view kName = "Pad";
  static constexpr std::string_view kDocumentation =
      R"(X with elements added (or, where a pad is negative, taken away) at the ends of its axes

mode constant: a value, default 0; reflect: mirrored at the first and last element, which are not repeated; edge: the first and last
element repeated; wrap (opset 19): as if X were periodic. Negative pads crop first, then the other end is padded from what is left.
Reflecting by more than the axis has to mirror, or extending an empty axis by anything but a constant, is refused: the specification
does not define it, and frameworks differ or read out of bounds. pads and value are attributes until opset 10; from 11 on pads
(int64, begins then ends) and constant_value (X's type) are inputs; from 18 on `axes` says which axes pads are for.)";
  static constexpr Arity kInputs{1, 4};
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"mode", AttributeKind::text, "constant (default), reflect, edge; from opset 19 wrap"},
            {"pads", AttributeKind::integers, "required; begins, then ends", 1, 10},
            {"value", AttributeKind::real, "the constant; default 0", 1, 10}};
  }

  static Expected<Types> infer(const Call& call) {
    const std::string mode = call.text("mode", "constant");
    if (mode != "constant" && mode != "reflect" && mode != "edge" && (mode != "wrap" || call.opset() < 19))
      return make_error("attribute 'mode' is '{}', expected constant, reflect, edge{}", mode,
                        call.opset() < 19 ? "" : " or wrap");
    if (call.has(2)) {
      if (call.opset() < 11) return make_error("input 2 ('constant_value') is given, but it exists from opset 11 on");
      if (call.dtype(2) != call.dtype(0))
        return make_error("'constant_value' has type {}, X has {}", dtype_name(call.dtype(2)),
                          dtype_name(call.dtype(0)));
      if (element_count(call.shape(2)) != 1 || call.rank(2) > 1)
        return make_error("'constant_value' has shape {}, expected a scalar", to_string(call.shape(2)));
    }
    OPDIFF_TRY(const std::optional<std::vector<Border>> axes, borders(call));
    if (!axes) return Types{{call.dtype(0), std::nullopt}};
    Shape shape;
    for (const Border& b : *axes) shape.push_back(b.extent());
    return Types{{call.dtype(0), shape}};
  }

  static Movement movement(const Call& call) {
    const std::vector<Border> axes = **borders(call);
    const std::string mode = call.text("mode", "constant");
    const Shape dense = strides_of(call.shape(0));
    Movement m;
    m.source = {0};
    // Axis by axis: the flat index so far, times every position of the axis; -1 once outside.
    for (std::size_t d = 0; d < axes.size(); ++d) {
      m.shape.push_back(axes[d].extent());
      std::vector<std::int64_t> next;
      next.reserve(m.source.size() * static_cast<std::size_t>(m.shape.back()));
      for (const std::int64_t base : m.source)
        for (std::int64_t i = 0; i < m.shape.back(); ++i) {
          const std::int64_t position = base < 0 ? -1 : source(axes[d], mode, i - axes[d].before);
          next.push_back(position < 0 ? -1 : base + position * dense[d]);
        }
      m.source = std::move(next);
    }
    if (mode == "constant") {
      if (call.has(2))
        m.fill = *call.tensor(2);
      else if (call.opset() < 11)
        m.fill = Tensor::scalar_like(call.dtype(0), call.real("value", 0));
    }
    return m;
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const DType dtype = c.dtype();
    const int opset = dtype == DType::boolean ? std::max(c.opset(), 13)
                      : is_integer(dtype)     ? std::max(c.opset(), 11)
                                              : c.opset();
    const std::vector<std::string> modes =
        opset < 19 ? std::vector<std::string>{"constant", "constant", "reflect", "edge"}
                   : std::vector<std::string>{"constant", "constant", "reflect", "edge", "wrap"};
    const std::string mode = rng.pick(modes);
    Shape shape = mode == "constant" ? c.shape_or_empty(1, 5, 7) : c.shape(1, 5, 7);
    const std::int64_t rank = std::ssize(shape);
    Shape axes;
    for (std::int64_t d = 0; d < rank; ++d) axes.push_back(d);
    const bool has_axes = opset >= 18 && rng.chance(0.4);
    if (has_axes) {
      std::swap(axes.front(), axes[static_cast<std::size_t>(rng.integer(0, rank - 1))]);
      axes.resize(static_cast<std::size_t>(rng.integer(1, rank)));
    }
    const std::size_t n = axes.size();
    Shape pads(2 * n);
    const bool crops = rng.chance(0.25);
    for (std::size_t k = 0; k < n; ++k) {
      const std::int64_t extent = shape[static_cast<std::size_t>(axes[k])];
      std::int64_t left = extent;
      for (const std::size_t at : {k, n + k}) {
        if (crops && rng.chance(0.4) && left > 1) pads[at] = -rng.integer(0, left - 1);
        left += std::min<std::int64_t>(pads[at], 0);
      }
      const std::int64_t most = mode == "reflect" ? left - 1 : mode == "wrap" ? left : 4;
      for (const std::size_t at : {k, n + k})
        if (pads[at] == 0 && rng.chance(0.6)) pads[at] = rng.integer(0, std::max<std::int64_t>(most, 0));
    }
    if (has_axes)
      for (std::int64_t& axis : axes)
        if (rng.chance(0.3)) axis -= rank;
    const bool has_value = mode == "constant" && rng.chance(0.6);
    const double value = is_float(dtype) ? rng.normal() : 1;
    std::vector<std::optional<Tensor>> inputs{c.elements(shape)};
    if (opset >= 11) {
      inputs.push_back(SampleContext::int64s(pads));
      if (has_value || has_axes)
        inputs.push_back(has_value ? std::optional(Tensor::scalar_like(dtype, value)) : std::nullopt);
      if (has_axes) inputs.push_back(SampleContext::int64s(axes));
    }
    Sample s = c.make(kName, std::move(inputs));
    s.opset = opset;
    if (mode != "constant" || rng.chance(0.5)) s.node.attributes["mode"] = mode;
    if (opset < 11) {
      s.node.attributes["pads"] = pads;
      if (has_value) s.node.attributes["value"] = static_cast<float>(value);
    }
    const bool weights = rng.chance(0.8);
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = weights && s.inputs[k];
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    const auto refuse = [&](const Shape& pads, std::map<std::string, Attribute> attributes, std::string why) {
      return refused_sample(kName, {x, SampleContext::int64s(pads)}, std::move(attributes), std::move(why));
    };
    const Tensor pads = SampleContext::int64s({0, 0, 0, 0}), one = Tensor::zeros(DType::f32, {});
    return {refuse({1, 1}, {}, "pads"),
            refuse({-3, 0, 0, 0}, {}, "pads"),
            refuse({-2, 0, -2, 0}, {}, "pads"),
            refuse({2, 0, 0, 0}, {{"mode", std::string("reflect")}}, "reflect"),
            refuse({-2, 0, 1, 0}, {{"mode", std::string("edge")}}, "edge"),
            refuse({0, 0, 0, 0}, {{"mode", std::string("wrap")}}, "mode"),
            refuse({0, 0, 0, 0}, {{"mode", std::string("symmetric")}}, "mode"),
            refuse({0, 0, 0, 0}, {{"pads", Shape{0, 0, 0, 0}}}, "pads"),
            refused_sample(kName, {x}, {}, "pads"),
            refused_sample(kName, {x}, {}, "pads", 10),
            refused_sample(kName, {x, pads, Tensor::zeros(DType::f64, {})}, {}, "type"),
            refused_sample(kName, {x, pads, x}, {}, "scalar"),
            refused_sample(kName, {x, pads, one, SampleContext::int64s({0, 1})}, {}, "axes", 17),
            refused_sample(kName, {x, pads, one, SampleContext::int64s({0, 0})}, {}, "twice", 18),
            refused_sample(kName, {x, pads, one, SampleContext::int64s({0})}, {}, "pads", 18)};
  }

 private:
  // Which input position the result's position i (counted from the first kept element) shows; -1: the constant.
  static std::int64_t source(const Border& b, const std::string& mode, std::int64_t i) {
    if (i >= 0 && i < b.kept) return b.first + i;
    if (mode == "constant") return -1;
    if (mode == "edge") return b.first + (i < 0 ? 0 : b.kept - 1);
    if (mode == "reflect") return b.first + (i < 0 ? -i : 2 * (b.kept - 1) - i);
    return b.first + ((i % b.kept) + b.kept) % b.kept;
  }

  // One border per axis of X; nullopt: a value is not known yet.
  static Expected<std::optional<std::vector<Border>>> borders(const Call& call) {
    OPDIFF_TRY(const IntegerList pads, integer_list(call, "pads", 1, 11));
    OPDIFF_TRY(const IntegerList list, integer_list(call, "axes", 3, 18));
    if (!pads.given) return make_error("'pads' is missing");
    if (!pads.known || !list.known) return std::nullopt;
    const Shape& x = call.shape(0);
    const std::string mode = call.text("mode", "constant");
    OPDIFF_TRY(std::vector<int> axes, normalise_axes(list.values, call.rank(0)));
    if (!list.given)
      for (int d = 0; d < static_cast<int>(x.size()); ++d) axes.push_back(d);
    if (pads.values.size() != 2 * axes.size())
      return make_error("'pads' is {}, expected {} numbers for {} axes", to_string(pads.values), 2 * axes.size(),
                        axes.size());
    std::vector<Border> result;
    for (const std::int64_t extent : x) result.push_back({0, extent, 0, 0});
    constexpr std::int64_t kLimit = std::int64_t{1} << 48;  // as for shapes: sums of pads must not overflow
    for (std::size_t k = 0; k < axes.size(); ++k) {
      const std::int64_t begin = pads.values[k], end = pads.values[axes.size() + k];
      Border& b = result[static_cast<std::size_t>(axes[k])];
      if (std::max(begin, end) > kLimit || std::min(begin, end) < -kLimit)
        return make_error("'pads' is {}: more than 2^48 elements", to_string(pads.values));
      b.first = std::max<std::int64_t>(-begin, 0);
      b.kept -= b.first + std::max<std::int64_t>(-end, 0);
      b.before = std::max<std::int64_t>(begin, 0);
      b.after = std::max<std::int64_t>(end, 0);
      if (b.kept < 0)
        return make_error("'pads' is {}: axis {} of X {} has not that many elements to take away",
                          to_string(pads.values), axes[k], to_string(x));
      const std::int64_t most = mode == "reflect" ? b.kept - 1 : b.kept == 0 ? 0 : kLimit;
      if (mode != "constant" && std::max(b.before, b.after) > std::max<std::int64_t>(most, 0))
        return make_error("'pads' is {}: mode {} cannot extend axis {} of X {} by {} from {} elements",
                          to_string(pads.values), mode, axes[k], to_string(x), std::max(b.before, b.after), b.kept);
    }
    return result;
  }
};

}  // namespace

const MetaOperator& pad() {
  static const MetaOperator op = describe<Pad>();
  return op;
}

}  // namespace opdiff::operators
