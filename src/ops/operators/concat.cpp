#include <limits>

#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Concat {
  static constexpr std::string_view kName = "Concat";
  static constexpr std::string_view kDocumentation = R"(The inputs one after the other along `axis`

One or more inputs of one type, with equal dimensions but along `axis`; a dimension of 0 there adds nothing. Scalars are refused.)";
  static constexpr Arity kInputs{1, -1};
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"axis", AttributeKind::integer, "required; in [-rank, rank) (before opset 11: [0, rank))"}};
  }

  static Expected<Types> infer(const Call& call) {
    if (!call.has_attribute("axis")) return make_error("attribute 'axis' is missing");
    if (call.input_count() > std::numeric_limits<std::int16_t>::max())
      return make_error("{} inputs given, at most {} are supported", call.input_count(),
                        std::numeric_limits<std::int16_t>::max());
    const auto axis = normalise_axis(call.integer("axis", 0), call.rank(0));
    if (!axis) return make_error("attribute 'axis' is {}: {}", call.integer("axis", 0), axis.error().message);
    Shape shape = call.shape(0);
    for (int k = 1; k < call.input_count(); ++k) {
      if (!call.has(k)) return make_error("input {} is missing", k);
      if (call.dtype(k) != call.dtype(0))
        return make_error("input {} has type {}, input 0 has {}", k, dtype_name(call.dtype(k)),
                          dtype_name(call.dtype(0)));
      Shape other = call.shape(k);
      bool fits = other.size() == shape.size();
      for (std::size_t d = 0; fits && d < shape.size(); ++d)
        fits = other[d] == shape[d] || static_cast<int>(d) == *axis;
      if (!fits)
        return make_error("input {} has shape {}, but input 0 has {}: they may differ along axis {} only", k,
                          to_string(other), to_string(call.shape(0)), *axis);
      shape[static_cast<std::size_t>(*axis)] += other[static_cast<std::size_t>(*axis)];
    }
    return Types{{call.dtype(0), shape}};
  }

  static Movement movement(const Call& call) {
    const auto axis = static_cast<std::size_t>(*normalise_axis(call.integer("axis", 0), call.rank(0)));
    Movement m;
    m.shape = call.shape(0);
    std::int64_t outer = 1;
    for (std::size_t d = 0; d < axis; ++d) outer *= m.shape[d];
    for (int k = 1; k < call.input_count(); ++k) m.shape[axis] += call.shape(k)[axis];
    for (std::int64_t o = 0; o < outer; ++o)
      for (int k = 0; k < call.input_count(); ++k) {
        const std::int64_t block = element_count(call.shape(k)) / outer;
        for (std::int64_t i = 0; i < block; ++i) {
          m.source.push_back(o * block + i);
          m.which.push_back(static_cast<std::int16_t>(k));
        }
      }
    return m;
  }

  static std::vector<int> differentiable() { return {}; }  // every input

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const Shape shape = c.shape(1, 5, 6);
    const std::int64_t rank = std::ssize(shape), count = c.extent(1, 5);
    std::int64_t axis = rng.integer(0, rank - 1);
    std::vector<std::optional<Tensor>> inputs;
    for (std::int64_t k = 0; k < count; ++k) {
      Shape part = shape;
      part[static_cast<std::size_t>(axis)] = rng.chance(0.02) ? 0 : c.extent(1, 6);
      inputs.push_back(c.elements(part));
    }
    Sample s = c.make(kName, std::move(inputs));
    if (s.opset >= 11 && rng.chance(0.3)) axis -= rank;
    s.node.attributes["axis"] = axis;
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = rng.chance(0.2);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    const std::map<std::string, Attribute> first{{"axis", std::int64_t{0}}};
    return {refused_sample(kName, {x, x}, {}, "axis"),
            refused_sample(kName, {x, x}, {{"axis", std::int64_t{2}}}, "axis"),
            refused_sample(kName, {x, Tensor::zeros(DType::f32, {2, 4})}, first, "shape"),
            refused_sample(kName, {x, Tensor::zeros(DType::f32, {2})}, first, "shape"),
            refused_sample(kName, {x, Tensor::zeros(DType::f64, {2, 3})}, first, "type"),
            refused_sample(kName, {Tensor::zeros(DType::f32, {})}, first, "axis")};
  }
};

}  // namespace

const MetaOperator& concat() {
  static const MetaOperator op = describe<Concat>();
  return op;
}

}  // namespace opdiff::operators
