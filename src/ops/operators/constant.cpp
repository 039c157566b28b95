#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Constant {
  static constexpr std::string_view kName = "Constant";
  static constexpr std::string_view kDocumentation = R"(The tensor that an attribute holds

Exactly one of: value (any tensor), and from opset 12 value_float, value_floats (f32), value_int, value_ints (int64), a scalar or a
vector. Strings and sparse tensors are refused.)";
  static constexpr Arity kInputs{0, 0};
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"value", AttributeKind::tensor, "the tensor"},
            {"value_float", AttributeKind::real, "a float scalar", 12},
            {"value_floats", AttributeKind::reals, "a float vector", 12},
            {"value_int", AttributeKind::integer, "an int64 scalar", 12},
            {"value_ints", AttributeKind::integers, "an int64 vector", 12},
            {"value_string", AttributeKind::text, "refused", 12},
            {"value_strings", AttributeKind::texts, "refused", 12},
            {"sparse_value", AttributeKind::tensor, "refused", 11}};
  }

  static Expected<Types> infer(const Call& call) {
    std::string given;
    for (const auto& [name, value] : call.node().attributes) {
      if (name == "value_string" || name == "value_strings")
        return make_error("attribute '{}': strings are not supported", name);
      if (name == "sparse_value") return make_error("attribute 'sparse_value': sparse tensors are not supported");
      if (!given.empty()) return make_error("attributes '{}' and '{}' are both given, expected one", given, name);
      given = name;
    }
    if (given.empty()) return make_error("attribute 'value' is missing");
    const Tensor tensor = value(call);
    return Types{{tensor.dtype(), tensor.shape()}};
  }

  static std::vector<Tensor> exact(const Call& call) { return {value(call)}; }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    Sample s = c.make(kName, {});
    const int kind = s.opset < 12 ? 0 : static_cast<int>(rng.integer(0, 7));
    const auto count = static_cast<std::size_t>(c.extent(0, 6));
    std::vector<float> reals(count);
    std::vector<std::int64_t> integers(count);
    for (float& v : reals) v = static_cast<float>(rng.normal());
    for (std::int64_t& v : integers) v = static_cast<std::int64_t>(rng.next()) >> rng.integer(0, 63);
    switch (kind) {
      case 1: s.node.attributes["value_float"] = static_cast<float>(rng.normal()); break;
      case 2: s.node.attributes["value_floats"] = reals; break;
      case 3: s.node.attributes["value_int"] = static_cast<std::int64_t>(rng.next()); break;
      case 4: s.node.attributes["value_ints"] = integers; break;
      default: s.node.attributes["value"] = c.elements(c.shape_or_empty(0, 5, 5));
    }
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2});
    return {refused_sample(kName, {}, {}, "value"),
            refused_sample(kName, {}, {{"value", x}, {"value_int", std::int64_t{1}}}, "both"),
            refused_sample(kName, {}, {{"value_int", std::int64_t{1}}}, "value_int", 11),
            refused_sample(kName, {}, {{"value_string", std::string("a")}}, "strings"),
            refused_sample(kName, {}, {{"value_strings", std::vector<std::string>{"a"}}}, "strings"),
            refused_sample(kName, {}, {{"sparse_value", x}}, "sparse"),
            refused_sample(kName, {x}, {{"value", x}}, "inputs")};
  }

 private:
  static Tensor value(const Call& call) {
    if (const Tensor* tensor = call.tensor_attribute("value")) return *tensor;
    const auto& [name, attribute] = *call.node().attributes.begin();
    if (const auto* real = std::get_if<float>(&attribute)) return Tensor::scalar_like(DType::f32, *real);
    if (const auto* integer = std::get_if<std::int64_t>(&attribute)) return SampleContext::scalar_int64(*integer);
    if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&attribute))
      return SampleContext::int64s(*integers);
    const auto& reals = std::get<std::vector<float>>(attribute);
    return Tensor::from_doubles(DType::f32, {std::ssize(reals)}, std::vector<double>(reals.begin(), reals.end()));
  }
};

}  // namespace

const MetaOperator& constant() {
  static const MetaOperator op = describe<Constant>();
  return op;
}

}  // namespace opdiff::operators
