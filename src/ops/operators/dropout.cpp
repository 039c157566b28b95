#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Dropout {
  static constexpr std::string_view kName = "Dropout";
  static constexpr std::string_view kDocumentation = R"(Inference: Y = X, bit for bit, and a mask of ones

Any shape. Training (input training_mode = true, opset 12) is refused: its result is random. The ratio does not matter. The optional
mask has X's type until opset 9 and is bool from 10 on; opset 12 says that it is all true. Before, the specification is silent and
onnxruntime returns zeros: a convention.)";
  static constexpr Arity kInputs{1, 3};
  static constexpr Arity kOutputs{1, 2};

  static std::vector<AttributeSpec> attributes() {
    return {{"ratio", AttributeKind::real, "share of dropped elements in training; default 0.5", 1, 11},
            {"seed", AttributeKind::integer, "of the random numbers in training", 12}};
  }

  static Expected<Types> infer(const Call& call) {
    if (call.opset() < 12 && call.input_count() > 1)
      return make_error("{} inputs given, but 'ratio' and 'training_mode' are inputs from opset 12 on",
                        call.input_count());
    if (call.has(1) && (!is_float(call.dtype(1)) || element_count(call.shape(1)) != 1))
      return make_error("'ratio' is {}, expected a floating scalar",
                        to_string(TensorType{call.dtype(1), call.shape(1)}));
    if (call.has(2)) {
      if (call.dtype(2) != DType::boolean || element_count(call.shape(2)) != 1)
        return make_error("'training_mode' is {}, expected a bool scalar",
                          to_string(TensorType{call.dtype(2), call.shape(2)}));
      if (call.tensor(2) && call.tensor(2)->int_at(0) != 0)
        return make_error("'training_mode' is true, only inference (false) is supported: the result is random");
    }
    Types types{{call.dtype(0), call.shape(0)}};
    if (call.node().outputs.size() > 1) types.push_back({output_dtype(call, 1), call.shape(0)});
    return types;
  }

  static DType output_dtype(const Call& call, int output) {
    return output == 0 || call.opset() < 10 ? call.dtype(0) : DType::boolean;
  }

  static Movement movement(const Call& call) { return {call.shape(0), {}, {}, {}}; }

  static Tensor integer_output(const Call& call, int output) {
    const std::vector<double> ones(static_cast<std::size_t>(element_count(call.shape(0))), 1);
    return Tensor::from_doubles(output_dtype(call, output), call.shape(0), ones);
  }

  static std::vector<Convention> conventions(const Call& call) {
    if (call.opset() >= 12) return {};
    return {{"the mask of inference is zero", {*call.tensor(0), Tensor::zeros(output_dtype(call, 1), call.shape(0))}}};
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    std::vector<std::optional<Tensor>> inputs{c.elements(c.shape_or_empty(0, 5))};
    const bool has_ratio = rng.chance(0.6), has_mode = c.opset() >= 12 && rng.chance(0.5);
    // The type of `ratio` includes bf16 from opset 22 on.
    const DType ratio = c.dtype() == DType::bf16 ? DType::f32 : c.dtype();
    if (c.opset() >= 12 && (has_ratio || has_mode))
      inputs.push_back(has_ratio ? std::optional(Tensor::scalar_like(ratio, 0.3)) : std::nullopt);
    if (has_mode) inputs.push_back(Tensor::zeros(DType::boolean, {}));
    Sample s = c.make(kName, std::move(inputs), rng.chance(0.3) ? 2 : 1);
    if (c.opset() < 12 && has_ratio) s.node.attributes["ratio"] = 0.3f;
    if (c.opset() >= 12 && rng.chance(0.2)) s.node.attributes["seed"] = std::int64_t{7};
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = s.inputs[k].has_value();
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2}), ratio = Tensor::zeros(DType::f32, {});
    const Tensor yes = Tensor::scalar_like(DType::boolean, 1);
    return {refused_sample(kName, {x, ratio, yes}, {}, "training_mode"),
            refused_sample(kName, {x, std::nullopt, yes}, {}, "training_mode"),
            refused_sample(kName, {x, ratio}, {}, "opset 12", 10),
            refused_sample(kName, {x}, {{"ratio", 0.5f}}, "ratio", 12),
            refused_sample(kName, {x, x}, {}, "ratio"),
            refused_sample(kName, {x, ratio, ratio}, {}, "training_mode"),
            refused_sample(kName, {Tensor::zeros(DType::i32, {2})}, {}, "type")};
  }
};

}  // namespace

const MetaOperator& dropout() {
  static const MetaOperator op = describe<Dropout>();
  return op;
}

}  // namespace opdiff::operators
