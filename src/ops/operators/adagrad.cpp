#include <limits>

#include "ops/optimiser.h"

namespace opdiff::operators {
namespace {

struct Adagrad {
  static constexpr std::string_view kName = "Adagrad";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr bool kUpdates = true;
  static constexpr int kLeading = kParameter;
  static constexpr std::string_view kDocumentation = R"(One step of Adagrad (Duchi et al. 2011):

  g = G + weight_decay X
  H_new = H + g^2
  X_new = X - R / (1 + T lr_decay) g / (sqrt(H_new) + epsilon)

Inputs R (learning rate, scalar), T (int64, steps done before), X, G, H; outputs X_new and H_new. Sources: torch.optim.Adagrad, ONNX's
ai.onnx.preview.training Adagrad. Where epsilon is added is the attribute epsilon_place: `outside` the square root (torch, ONNX) or
`inside` it (Keras). Low precision: in f32, rounded to storage after every step, or stored by each of torch's five kernels.)";
  static constexpr Arity kInputs{5, 5};
  static constexpr Arity kOutputs{1, 2};

  static std::vector<AttributeSpec> attributes() {
    return {{"lr_decay", AttributeKind::real, "the rate is divided by 1 + T lr_decay; default 0"},
            {"epsilon", AttributeKind::real, "keeps the divisor from zero; default 1e-10"},
            {"epsilon_place", AttributeKind::text, "outside (default) or inside the square root"},
            {"weight_decay", AttributeKind::real, "added to the gradient times X, at least 0; default 0"}};
  }
  static std::vector<std::string_view> formulas() {
    return {"rate times gradient, divided", "quotient times the rate", "stored after every kernel"};
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_RETURN_IF_ERROR(check_range(call, "lr_decay", 0, 0, kMost));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "epsilon", 1e-10, 0, kMost));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "weight_decay", 0, 0, kMost));
    OPDIFF_TRY(const std::string place, epsilon_place(call, {"outside", "inside"}));
    static_cast<void>(place);
    return infer_update(call, {{"H", true}});
  }

  static DType output_dtype(const Call& call, int) { return call.dtype(kParameter); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const auto x = frame.input(kParameter), g = frame.input(kGradient), h = frame.input(kFirstState);
    const auto out = update_outputs(frame, 1);
    const bool decays = call.real("weight_decay", 0) != 0, inside = call.text("epsilon_place", "outside") == "inside";
    const T decay = frame.parameter(call.real("weight_decay", 0)),
            epsilon = frame.parameter(call.real("epsilon", static_cast<double>(1e-10f)));
    const T rate = scalar_of<T>(Quad(learning_rate(call)) /
                                (1 + Quad(static_cast<double>(steps_before(call))) * Quad(call.real("lr_decay", 0))));
    const auto kept = [&](const T& value) {
      return frame.formula() == 2 ? stored(value, call.dtype(kParameter)) : value;
    };
    for (std::size_t i = 0; i < x.size(); ++i) {
      // torch's sum with a factor rounds the factor and the product to storage, too.
      const T gradient = decays ? kept(T(g[i]) + kept(kept(decay) * T(x[i]))) : T(g[i]);
      out[1][i] = T(h[i]) + gradient * gradient;
      const T squares = kept(out[1][i]);
      const T divisor = kept(inside ? sqrt(kept(squares + epsilon)) : kept(sqrt(squares)) + epsilon);
      out[0][i] = T(x[i]) - (frame.formula() == 0 ? rate * gradient / divisor : gradient / divisor * rate);
    }
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    std::map<std::string, Attribute> attributes;
    if (rng.chance(0.4)) attributes["lr_decay"] = 0.01f;
    if (rng.chance(0.6)) attributes["epsilon"] = static_cast<float>(std::pow(10.0, rng.uniform(-8, -2)));
    if (rng.chance(0.2)) attributes["epsilon_place"] = std::string(rng.chance(0.7) ? "inside" : "outside");
    if (rng.chance(0.4)) attributes["weight_decay"] = static_cast<float>(std::pow(10.0, rng.uniform(-5, -1)));
    return sample_update(c, kName, std::move(attributes), {{true, StateKind::squares}});
  }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = refused_updates(
        kName, {}, 1,
        {{{{"epsilon_place", std::string("uncorrected")}}, "epsilon_place"}, {{{"epsilon", -1.0f}}, "epsilon"}});
    samples.erase(samples.begin() + 6);  // H is one of the inputs that must be there: the count says so
    return samples;
  }
};

}  // namespace

const MetaOperator& adagrad() {
  static const MetaOperator op = describe<Adagrad>();
  return op;
}

}  // namespace opdiff::operators
