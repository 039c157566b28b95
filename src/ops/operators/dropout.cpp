#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/rounded_scalar.h"

namespace opdiff::operators {
namespace {

struct Dropout {
  static constexpr std::string_view kName = "Dropout";
  static constexpr std::string_view kDocumentation =
      R"(Inference: Y = X and a mask of ones. Training: Y = X / (1 - ratio) where the mask is true, else 0

Any shape. The ratio does not matter in inference. The optional mask has X's type until opset 9 and is bool from 10 on; opset 12 says
that it is all true in inference. Before, the specification is silent and onnxruntime returns zeros: a convention.

Training (input training_mode = true, opset 12) draws the mask: each element is true with the probability 1 - ratio. What a backend
drew is held against the binomial distribution (odds of 1e-9 for the whole mask), then taken as given for Y; a backend that returns no
mask shows it in Y. Input 3 is ours, not ONNX's: a mask that was drawn before, bool, of X's shape; with it Y follows that mask and
the result is not random. Without a backend the mask is drawn from the seed. What becomes of an infinity or NaN that is dropped, 0 or
NaN (the product with 0), is left open.)";
  static constexpr Arity kInputs{1, 4};
  static constexpr Arity kOutputs{1, 2};
  static constexpr int kGiven = 3;

  static std::vector<AttributeSpec> attributes() {
    return {{"ratio", AttributeKind::real, "share of dropped elements in training; default 0.5", 1, 11},
            {"seed", AttributeKind::integer, "of the random numbers in training", 12}};
  }
  static std::vector<std::string_view> formulas() {
    return {"times 1 / (1 - ratio), rounded once", "times 1 / (1 - ratio), step by step", "divided by 1 - ratio"};
  }

  static Expected<Types> infer(const Call& call) {
    if (call.opset() < 12 && call.input_count() > 1)
      return make_error("{} inputs given, but 'ratio' and 'training_mode' are inputs from opset 12 on",
                        call.input_count());
    if (call.has(1) && (!is_float(call.dtype(1)) || element_count(call.shape(1)) != 1))
      return make_error("'ratio' is {}, expected a floating scalar",
                        to_string(TensorType{call.dtype(1), call.shape(1)}));
    if (call.has(2) && (call.dtype(2) != DType::boolean || element_count(call.shape(2)) != 1))
      return make_error("'training_mode' is {}, expected a bool scalar",
                        to_string(TensorType{call.dtype(2), call.shape(2)}));
    if (trains(call) && (!call.has(1) || call.tensor(1)))
      if (const double ratio = ratio_of(call); !(ratio >= 0 && ratio < 1))
        return make_error("'ratio' is {}, expected [0, 1) in training", ratio);
    if (call.has(kGiven) && (call.dtype(kGiven) != DType::boolean || call.shape(kGiven) != call.shape(0)))
      return make_error("the mask given is {}, expected bool of shape {}",
                        to_string(TensorType{call.dtype(kGiven), call.shape(kGiven)}), to_string(call.shape(0)));
    Types types{{call.dtype(0), call.shape(0)}};
    if (call.node().outputs.size() > 1) types.push_back({output_dtype(call, 1), call.shape(0)});
    return types;
  }

  static DType output_dtype(const Call& call, int output) {
    return output == 0 || call.opset() < 10 ? call.dtype(0) : DType::boolean;
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    if (!trains(call)) return map_elements(frame, [](const auto& x) { return T(x); });
    const auto x = frame.input(0);
    const auto y = frame.output(0, call.shape(0));
    scale(call, frame.formula(), x, y);
  }

  static constexpr std::string_view kGradientDocumentation =
      "Inference: dX = dY. Training: dX = dY / (1 - ratio) where the mask is true, else 0; the mask that the forward "
      "pass "
      "drew is input 3, without which there is no gradient.";

  static std::vector<int> differentiable() { return {0}; }
  static std::vector<std::string_view> gradient_formulas() { return formulas(); }

  static Expected<void> check_gradient(const Call& call) {
    if (trains(call) && !call.has(kGiven))
      return make_error("training needs the mask that was drawn, input {}", kGiven);
    return {};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Call& call = frame.call();
    if (!trains(call)) return map_slopes(frame, [](const auto&, const T& dy) { return dy; });
    const auto dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    scale(call, frame.formula(), dy, dx);
  }

  static std::optional<double> random_output(const Call& call, int output) {
    if (output != 1 || !trains(call) || call.has(kGiven)) return std::nullopt;
    return 1 - ratio_of(call);
  }

  static Tensor shown_by(const Call& call, const Tensor& result) {
    std::vector<double> mask(static_cast<std::size_t>(result.size()));
    for (std::int64_t i = 0; i < result.size(); ++i) {
      const double x = call.tensor(0)->at(i), y = result.at(i);
      mask[static_cast<std::size_t>(i)] = std::isfinite(x) ? y != 0 : y == x;
    }
    return Tensor::from_doubles(DType::boolean, result.shape(), mask);
  }

  static Tensor integer_output(const Call& call, int output) {
    if (trains(call)) {
      const std::vector<double> mask = mask_of(call);
      return Tensor::from_doubles(output_dtype(call, output), call.shape(0), mask);
    }
    const std::vector<double> ones(static_cast<std::size_t>(element_count(call.shape(0))), 1);
    return Tensor::from_doubles(output_dtype(call, output), call.shape(0), ones);
  }

  static std::vector<bool> unspecified(const Call& call, int output) {
    if (output != 0 || !trains(call)) return {};
    const std::vector<double> mask = mask_of(call);
    std::vector<bool> open(mask.size());
    for (std::size_t i = 0; i < mask.size(); ++i)
      open[i] = mask[i] == 0 && !std::isfinite(call.tensor(0)->at(static_cast<std::int64_t>(i)));
    return open;
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
    if (has_mode && rng.chance(0.7)) {
      s.inputs[2] = Tensor::scalar_like(DType::boolean, 1);
      if (has_ratio) s.inputs[1] = Tensor::scalar_like(ratio, rng.pick(kRatios));
      if (rng.chance(0.5)) {  // a mask that was drawn before
        s.inputs.emplace_back(c.tensor(DType::boolean, s.inputs[0]->shape()));
        s.initialiser.push_back(false);
        s.node.inputs.push_back("x3");
      }
    }
    for (std::size_t k = 1; k < s.initialiser.size() && k < 3; ++k) s.initialiser[k] = s.inputs[k].has_value();
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2}), ratio = Tensor::zeros(DType::f32, {});
    const Tensor yes = Tensor::scalar_like(DType::boolean, 1), one = Tensor::scalar_like(DType::f32, 1);
    return {refused_sample(kName, {x, one, yes}, {}, "ratio"),
            refused_sample(kName, {x, ratio, yes, Tensor::zeros(DType::boolean, {3})}, {}, "mask"),
            refused_sample(kName, {x, ratio}, {}, "opset 12", 10),
            refused_sample(kName, {x}, {{"ratio", 0.5f}}, "ratio", 12),
            refused_sample(kName, {x, x}, {}, "ratio"),
            refused_sample(kName, {x, ratio, ratio}, {}, "training_mode"),
            refused_sample(kName, {Tensor::zeros(DType::i32, {2})}, {}, "type")};
  }

 private:
  static constexpr double kRatios[] = {0, 0.1, 0.3, 0.5, 0.75, 0.9};

  static bool trains(const Call& call) {
    return call.opset() >= 12 && call.has(2) && call.tensor(2) && call.tensor(2)->int_at(0) != 0;
  }
  static double ratio_of(const Call& call) { return call.has(1) ? call.tensor(1)->at(0) : 0.5; }

  // The mask given, or one drawn from the seed.
  static std::vector<double> mask_of(const Call& call) {
    if (call.has(kGiven)) return call.tensor(kGiven)->to_doubles();
    std::vector<double> mask(static_cast<std::size_t>(element_count(call.shape(0))));
    Rng rng(static_cast<std::uint64_t>(call.integer("seed", 0)), kName, 0);
    for (double& m : mask) m = rng.chance(1 - ratio_of(call));
    return mask;
  }

  template <class From, class T>
  static void scale(const Call& call, int formula, const From& from, std::span<T> to) {
    const double ratio = ratio_of(call);
    const T kept = T(1) - T(ratio);
    const T factor = formula == 0 ? scalar_of<T>(1 / (Quad(1) - Quad(ratio))) : T(1) / kept;
    const std::vector<double> mask = mask_of(call);
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = mask[i] == 0 ? T(0) : formula == 2 ? T(from[i]) / kept : T(from[i]) * factor;
  }
};

}  // namespace

const MetaOperator& dropout() {
  static const MetaOperator op = describe<Dropout>();
  return op;
}

}  // namespace opdiff::operators
