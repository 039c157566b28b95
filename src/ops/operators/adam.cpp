#include <limits>

#include "ops/optimiser.h"

namespace opdiff::operators {
namespace {

struct Adam {
  static constexpr std::string_view kName = "Adam";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr bool kUpdates = true;
  static constexpr int kLeading = kParameter;
  static constexpr std::string_view kDocumentation =
      R"(One step of Adam (Kingma and Ba 2015), AMSGrad (Reddi et al. 2018) or AdamW (Loshchilov and Hutter 2019), n = T + 1:

  g = G + weight_decay X                     (decoupled: g = G, and X is multiplied by 1 - R weight_decay first)
  M_new = beta1 M + (1 - beta1) g, V_new = beta2 V + (1 - beta2) g^2
  W_new = max(W, V_new), used for V_new below (amsgrad)
  X_new = X - R m / (sqrt(v) + epsilon) with m = M_new / (1 - beta1^n), v = V_new / (1 - beta2^n)

Inputs R (learning rate, scalar), T (int64, steps done before), X, G, M, V and, with amsgrad, W; outputs X_new, M_new, V_new, W_new.
Source: torch.optim.Adam and AdamW. Where epsilon is added is the attribute epsilon_place: `outside` the square root of v (torch),
`inside` it (optax's eps_root), or `uncorrected`: to sqrt(V_new), before the bias correction (TensorFlow, Keras). The corrections may
be applied to the moments or folded into the size of the step, and be worked out in double, as Python does, or in f32, where
1 - beta2^n cancels; the mean is computed as written or by interpolation, M + (1 - beta1) (g - M), from the nearer end (torch.lerp:
g - beta1 (g - M) where beta1 <= 1/2). Low precision: in f32, or rounded
to storage after every step.)";
  static constexpr Arity kInputs{6, 7};
  static constexpr Arity kOutputs{1, 4};

  static std::vector<AttributeSpec> attributes() {
    return {{"beta1", AttributeKind::real, "decay of the mean, in [0, 1); default 0.9"},
            {"beta2", AttributeKind::real, "decay of the mean of squares, in [0, 1); default 0.999"},
            {"epsilon", AttributeKind::real, "keeps the divisor from zero; default 1e-8"},
            {"epsilon_place", AttributeKind::text, "outside (default) or inside the square root, or uncorrected"},
            {"weight_decay", AttributeKind::real, "at least 0; default 0"},
            {"decoupled", AttributeKind::integer, "1: weights decay by themselves (AdamW); default 0: in the gradient"},
            {"amsgrad", AttributeKind::integer, "1: divide by the largest mean of squares so far; default 0"}};
  }
  static std::vector<std::string_view> formulas() {
    return {"correction in the size of the step", "moments corrected", "mean interpolated",
            "corrections worked out in f32"};
  }

  static Expected<Types> infer(const Call& call) {
    OPDIFF_RETURN_IF_ERROR(check_range(call, "beta1", 0.9, 0, 1));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "beta2", 0.999, 0, 1));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "epsilon", 1e-8, 0, kMost));
    OPDIFF_RETURN_IF_ERROR(check_range(call, "weight_decay", 0, 0, kMost));
    OPDIFF_TRY(const std::string place, epsilon_place(call, {"outside", "inside", "uncorrected"}));
    static_cast<void>(place);
    return infer_update(call, {{"M", true}, {"V", true}, {"W", call.integer("amsgrad", 0) != 0}});
  }

  static DType output_dtype(const Call& call, int) { return call.dtype(kParameter); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const auto x = frame.input(kParameter), g = frame.input(kGradient), mean = frame.input(kFirstState),
               squares = frame.input(kFirstState + 1);
    const auto out = update_outputs(frame, 3);
    const double beta1 = call.real("beta1", static_cast<double>(0.9f)),
                 beta2 = call.real("beta2", static_cast<double>(0.999f)), rate = learning_rate(call),
                 weight_decay = call.real("weight_decay", 0);
    const std::string place = call.text("epsilon_place", "outside");
    const bool decoupled = call.integer("decoupled", 0) != 0, decays = weight_decay != 0;
    const bool largest = call.has(kFirstState + 2), folded = frame.formula() != 1;
    const T decay = frame.parameter(weight_decay), keep = scalar_of<T>(Quad(1) - Quad(rate) * Quad(weight_decay)),
            epsilon = frame.parameter(call.real("epsilon", static_cast<double>(1e-8f)));
    const T b1 = frame.parameter(beta1), b2 = frame.parameter(beta2), rest1 = scalar_of<T>(Quad(1) - Quad(beta1)),
            rest2 = scalar_of<T>(Quad(1) - Quad(beta2));
    const Corrections<T> by = corrections<T>(call, beta1, beta2, rate, frame.formula() == 3);
    const T r = frame.parameter(rate);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T gradient = decayed(g[i], x[i], decays && !decoupled, decay);
      T start(x[i]);
      if (decays && decoupled) start = folded ? start * keep : start - r * decay * start;
      const T old(mean[i]);
      const T m = frame.formula() != 2 ? b1 * old + rest1 * gradient
                  : beta1 > 0.5        ? old + rest1 * (gradient - old)
                                       : gradient - b1 * (gradient - old);
      const T v = b2 * T(squares[i]) + rest2 * gradient * gradient;
      out[1][i] = m;
      out[2][i] = v;
      T second = v;
      if (largest) {
        second = maximum(T(frame.input(kFirstState + 2)[i]), v);
        out[3][i] = second;
      }
      if (place == "inside")
        out[0][i] = start - (folded ? by.step * m / sqrt(second / by.second + epsilon)
                                    : m / by.first / sqrt(second / by.second + epsilon) * r);
      else if (place == "uncorrected")
        out[0][i] = start - (folded ? by.step * by.root * m / (sqrt(second) + epsilon)
                                    : m / by.first / ((sqrt(second) + epsilon) / by.root) * r);
      else
        out[0][i] = start - (folded ? by.step * m / (sqrt(second) / by.root + epsilon)
                                    : m / by.first / (sqrt(second / by.second) + epsilon) * r);
    }
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    std::map<std::string, Attribute> attributes;
    const bool amsgrad = rng.chance(0.3);
    if (amsgrad) attributes["amsgrad"] = std::int64_t{1};
    if (rng.chance(0.4)) attributes["beta1"] = static_cast<float>(rng.pick(kFirst));
    if (rng.chance(0.4)) attributes["beta2"] = static_cast<float>(rng.pick(kSecond));
    if (rng.chance(0.5)) attributes["epsilon"] = static_cast<float>(std::pow(10.0, rng.uniform(-8, -2)));
    if (rng.chance(0.3)) attributes["epsilon_place"] = std::string(rng.pick(kPlaces));
    if (rng.chance(0.5)) attributes["weight_decay"] = static_cast<float>(std::pow(10.0, rng.uniform(-5, -1)));
    if (rng.chance(0.4)) attributes["decoupled"] = std::int64_t{1};
    return sample_update(c, kName, std::move(attributes),
                         {{true, StateKind::signed_values}, {true, StateKind::squares}, {amsgrad, StateKind::squares}});
  }

  static std::vector<Sample> refused() {
    return refused_updates(
        kName, {{"amsgrad", std::int64_t{1}}}, 3,
        {{{}, "W"},
         {{{"amsgrad", std::int64_t{1}}, {"beta1", 1.0f}}, "beta1"},
         {{{"amsgrad", std::int64_t{1}}, {"beta2", -0.5f}}, "beta2"},
         {{{"amsgrad", std::int64_t{1}}, {"epsilon_place", std::string("below")}}, "epsilon_place"}});
  }

 private:
  static constexpr double kFirst[] = {0.9, 0.5, 0.0, 0.95};
  static constexpr double kSecond[] = {0.999, 0.99, 0.9, 0.95};
  static constexpr const char* kPlaces[] = {"outside", "inside", "uncorrected"};

  // 1 - beta1^n, 1 - beta2^n, the square root of that, and R / (1 - beta1^n).
  template <class T>
  struct Corrections {
    T first, second, root, step;
  };

  template <class T>
  static Corrections<T> corrections(const Call& call, double beta1, double beta2, double rate, bool in_f32) {
    const std::int64_t n = steps_before(call) + 1;
    if (in_f32) {  // whatever the storage: in bf16 nothing would be left of 1 - beta2
      const ProfileScope scope(inner_f32(call.dtype(kParameter)));
      const T first = T(1) - power(Frame<T>::parameter(beta1), n), second = T(1) - power(Frame<T>::parameter(beta2), n);
      return {first, second, sqrt(second), Frame<T>::parameter(rate) / first};
    }
    if constexpr (std::is_same_v<T, Enclosure<Quad>>) {  // double is under test: pow is within an ulp
      const T first = T(1) - scalar_of<T>(power(Quad(beta1), n)) * T(1),
              second = T(1) - scalar_of<T>(power(Quad(beta2), n)) * T(1);
      return {first, second, sqrt(second), Frame<T>::parameter(rate) / first};
    } else {
      const Quad first = 1 - power(Quad(beta1), n), second = 1 - power(Quad(beta2), n);
      return {scalar_of<T>(first), scalar_of<T>(second), scalar_of<T>(math::sqrt(second)),
              scalar_of<T>(Quad(rate) / first)};
    }
  }
};

}  // namespace

const MetaOperator& adam() {
  static const MetaOperator op = describe<Adam>();
  return op;
}

}  // namespace opdiff::operators
