#include <limits>

#include "ops/optimiser.h"

namespace opdiff::operators {
namespace {

struct SGD {
  static constexpr std::string_view kName = "SGD";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr bool kUpdates = true;
  static constexpr int kLeading = kParameter;
  static constexpr std::string_view kDocumentation =
      R"(One step of stochastic gradient descent, with momentum where the attribute says so:

  g = G + weight_decay X
  V_new = momentum V + (1 - dampening) g     (first step, T = 0: V_new = g)
  X_new = X - R V_new                        (nesterov: X - R (g + momentum V_new); without momentum: X - R g)

Inputs R (learning rate, scalar), T (int64, steps done before), X, G and, with momentum, V; outputs X_new and V_new. Source:
torch.optim.SGD; the first step's rule is the attribute first_step: `copy` (torch: no dampening in it) or `dampened` (V starts at zero).
Frameworks that keep R inside the buffer (Keras: V_new = momentum V - R g) agree while R does not change. Low precision: in f32, or
rounded to storage after every step.)";
  static constexpr Arity kInputs{4, 5};
  static constexpr Arity kOutputs{1, 2};

  static std::vector<AttributeSpec> attributes() {
    return {{"momentum", AttributeKind::real, "factor of the buffer, at least 0; default 0: no buffer"},
            {"dampening", AttributeKind::real, "the gradient enters the buffer times 1 - dampening; default 0"},
            {"nesterov", AttributeKind::integer, "1: the step looks ahead; default 0"},
            {"weight_decay", AttributeKind::real, "added to the gradient times X, at least 0; default 0"},
            {"first_step", AttributeKind::text, "copy (default): V_new = g when T = 0; dampened: no exception"}};
  }
  static std::vector<std::string_view> formulas() { return {"definition", "buffer times the rate, then subtracted"}; }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_RETURN_IF_ERROR(check_range(call, "momentum", 0, 0, kMost));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "dampening", 0, -kMost, kMost));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "weight_decay", 0, 0, kMost));
    const bool momentum = call.real("momentum", 0) != 0;
    if (call.integer("nesterov", 0) != 0 && (!momentum || call.real("dampening", 0) != 0))
      return make_error("attribute 'nesterov' is 1, which needs a momentum and no dampening");
    if (const std::string first = call.text("first_step", "copy"); first != "copy" && first != "dampened")
      return make_error("attribute 'first_step' is '{}', expected copy or dampened", first);
    return infer_update(call, {{"V", momentum}});
  }

  static DType output_dtype(const Call& call, int) { return call.dtype(kParameter); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const auto x = frame.input(kParameter), g = frame.input(kGradient);
    const auto out = update_outputs(frame, 1);
    const bool decays = call.real("weight_decay", 0) != 0, has_buffer = call.has(kFirstState);
    const bool nesterov = call.integer("nesterov", 0) != 0;
    const bool first = steps_before(call) == 0 && call.text("first_step", "copy") == "copy";
    const T rate = frame.parameter(learning_rate(call)), decay = frame.parameter(call.real("weight_decay", 0)),
            momentum = frame.parameter(call.real("momentum", 0)),
            rest = scalar_of<T>(Quad(1) - Quad(call.real("dampening", 0)));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T gradient = decayed(g[i], x[i], decays, decay);
      T step = gradient;
      if (has_buffer) {
        const T fresh = first ? gradient : momentum * T(frame.input(kFirstState)[i]) + rest * gradient;
        out[1][i] = fresh;
        step = nesterov ? gradient + momentum * fresh : fresh;
      }
      if (frame.formula() == 1 && nesterov)
        out[0][i] = T(x[i]) - (rate * gradient + rate * momentum * out[1][i]);
      else
        out[0][i] = T(x[i]) - rate * step;
    }
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    std::map<std::string, Attribute> attributes;
    const bool momentum = rng.chance(0.6);
    if (momentum) attributes["momentum"] = static_cast<float>(rng.pick(kFactors));
    if (momentum && rng.chance(0.4))
      attributes["nesterov"] = std::int64_t{1};
    else if (momentum && rng.chance(0.3))
      attributes["dampening"] = 0.1f;
    if (rng.chance(0.4)) attributes["weight_decay"] = static_cast<float>(std::pow(10.0, rng.uniform(-5, -1)));
    if (momentum && rng.chance(0.1)) attributes["first_step"] = std::string("dampened");
    return sample_update(c, kName, std::move(attributes), {{momentum, StateKind::signed_values}});
  }

  static std::vector<Sample> refused() {
    return refused_updates(kName, {{"momentum", 0.9f}}, 1,
                           {{{}, "V"},
                            {{{"momentum", 0.9f}, {"nesterov", std::int64_t{1}}, {"dampening", 0.5f}}, "nesterov"},
                            {{{"momentum", -0.9f}}, "momentum"},
                            {{{"momentum", 0.9f}, {"first_step", std::string("zero")}}, "first_step"}});
  }

 private:
  static constexpr double kFactors[] = {0.9, 0.99, 0.5};
};

}  // namespace

const MetaOperator& sgd() {
  static const MetaOperator op = describe<SGD>();
  return op;
}

}  // namespace opdiff::operators
