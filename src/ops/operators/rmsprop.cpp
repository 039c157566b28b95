#include <limits>

#include "ops/optimiser.h"

namespace opdiff::operators {
namespace {

struct RMSprop {
  static constexpr std::string_view kName = "RMSprop";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr bool kUpdates = true;
  static constexpr int kLeading = kParameter;
  static constexpr std::string_view kDocumentation = R"(One step of RMSprop (Hinton 2012; centered: Graves 2013):

  g = G + weight_decay X
  S_new = alpha S + (1 - alpha) g^2
  A_new = alpha A + (1 - alpha) g, q = S_new - A_new^2     (centered; else q = S_new)
  d = g / (sqrt(q) + epsilon)
  V_new = momentum V + d, X_new = X - R V_new              (without momentum: X - R d)

Inputs R (learning rate, scalar), T (int64, steps done before; not used), X, G, S, V (with momentum) and A (centered); outputs X_new,
S_new, V_new, A_new. Source: torch.optim.RMSprop. Where epsilon is added is the attribute epsilon_place: `outside` the square root
(torch) or `inside` it (TensorFlow, Keras). The running mean is computed as written or by interpolation, A + (1 - alpha) (g - A).
Low precision: in f32, or rounded to storage after every step.)";
  static constexpr Arity kInputs{5, 7};
  static constexpr Arity kOutputs{1, 4};

  static std::vector<AttributeSpec> attributes() {
    return {{"alpha", AttributeKind::real, "decay of the running mean of squares, in [0, 1); default 0.99"},
            {"epsilon", AttributeKind::real, "keeps the divisor from zero; default 1e-8"},
            {"epsilon_place", AttributeKind::text, "outside (default) or inside the square root"},
            {"momentum", AttributeKind::real, "factor of the buffer, at least 0; default 0: no buffer"},
            {"centered", AttributeKind::integer, "1: squares about the running mean; default 0"},
            {"weight_decay", AttributeKind::real, "added to the gradient times X, at least 0; default 0"}};
  }
  static std::vector<std::string_view> formulas() {
    return {"rate times gradient, divided", "quotient times the rate", "mean interpolated"};
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_RETURN_IF_ERROR(check_range(call, "alpha", 0.99, 0, 1));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "epsilon", 1e-8, 0, kMost));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "momentum", 0, 0, kMost));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "weight_decay", 0, 0, kMost));
    OPDIFF_TRY(const std::string place, epsilon_place(call, {"outside", "inside"}));
    static_cast<void>(place);
    return infer_update(call,
                        {{"S", true}, {"V", call.real("momentum", 0) != 0}, {"A", call.integer("centered", 0) != 0}});
  }

  static DType output_dtype(const Call& call, int) { return call.dtype(kParameter); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const auto x = frame.input(kParameter), g = frame.input(kGradient), s = frame.input(kFirstState);
    const auto out = update_outputs(frame, 3);
    const bool decays = call.real("weight_decay", 0) != 0, inside = call.text("epsilon_place", "outside") == "inside";
    const bool has_buffer = call.has(kFirstState + 1), centered = call.has(kFirstState + 2);
    const double a = call.real("alpha", static_cast<double>(0.99f));
    const T rate = frame.parameter(learning_rate(call)), decay = frame.parameter(call.real("weight_decay", 0)),
            epsilon = frame.parameter(call.real("epsilon", static_cast<double>(1e-8f))),
            momentum = frame.parameter(call.real("momentum", 0)), alpha = frame.parameter(a),
            rest = scalar_of<T>(Quad(1) - Quad(a));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T gradient = decayed(g[i], x[i], decays, decay);
      T squares = alpha * T(s[i]) + rest * gradient * gradient;
      out[1][i] = squares;
      if (centered) {
        const T old(frame.input(kFirstState + 2)[i]);
        const T mean = frame.formula() == 2 ? old + rest * (gradient - old) : alpha * old + rest * gradient;
        out[3][i] = mean;
        squares = squares - mean * mean;
      }
      const T divisor = inside ? sqrt(squares + epsilon) : sqrt(squares) + epsilon;
      if (has_buffer) {
        out[2][i] = momentum * T(frame.input(kFirstState + 1)[i]) + gradient / divisor;
        out[0][i] = T(x[i]) - rate * out[2][i];
      } else {
        out[0][i] = T(x[i]) - (frame.formula() == 1 ? gradient / divisor * rate : rate * gradient / divisor);
      }
    }
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    std::map<std::string, Attribute> attributes;
    const bool momentum = rng.chance(0.4), centered = rng.chance(0.3);
    if (rng.chance(0.5)) attributes["alpha"] = static_cast<float>(rng.pick(kDecays));
    if (momentum) attributes["momentum"] = 0.9f;
    if (centered) attributes["centered"] = std::int64_t{1};
    if (rng.chance(0.6)) attributes["epsilon"] = static_cast<float>(std::pow(10.0, rng.uniform(-8, -2)));
    if (rng.chance(0.2)) attributes["epsilon_place"] = std::string(rng.chance(0.7) ? "inside" : "outside");
    if (rng.chance(0.4)) attributes["weight_decay"] = static_cast<float>(std::pow(10.0, rng.uniform(-5, -1)));
    Sample sample = sample_update(
        c, kName, std::move(attributes),
        {{true, StateKind::squares}, {momentum, StateKind::signed_values}, {centered, StateKind::signed_values}});
    if (centered) {  // the mean of squares is at least the square of the mean
      const std::vector<double> mean = sample.inputs[kFirstState + 2]->to_doubles();
      std::vector<double> squares = sample.inputs[kFirstState]->to_doubles();
      for (std::size_t i = 0; i < squares.size(); ++i) squares[i] += mean[i] * mean[i];
      sample.inputs[kFirstState] = Tensor::from_doubles(c.dtype(), sample.inputs[kFirstState]->shape(), squares);
    }
    return sample;
  }

  static std::vector<Sample> refused() {
    return refused_updates(kName, {{"momentum", 0.9f}}, 2,
                           {{{}, "V"},
                            {{{"momentum", 0.9f}, {"centered", std::int64_t{1}}}, "'A'"},
                            {{{"momentum", 0.9f}, {"alpha", 1.0f}}, "alpha"},
                            {{{"momentum", 0.9f}, {"epsilon_place", std::string("uncorrected")}}, "epsilon_place"}});
  }

 private:
  static constexpr double kDecays[] = {0.9, 0.99, 0.999};
};

}  // namespace

const MetaOperator& rmsprop() {
  static const MetaOperator op = describe<RMSprop>();
  return op;
}

}  // namespace opdiff::operators
