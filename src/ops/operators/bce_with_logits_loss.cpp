#include <cmath>

#include "ops/loss.h"

namespace opdiff::operators {
namespace {

// log(1 + exp(-x)) for x >= 0. Relative errors of exp pass through with a factor of at most 1; an error of k ulp of the
// one is at most 2 k ulp of the other.
inline double tail(double x) { return math::log1p(math::exp(-x)); }
inline Quad tail(Quad x) { return math::log1p(math::exp(-x)); }
inline Working tail(Working x) { return Working::round(std::log1p(exp(-x).v)); }
inline Dual tail(const Dual& x) {
  const Quad e = math::exp(-x.v);
  return {math::log1p(e), -e / (1 + e) * x.d};
}
template <class V>
Enclosure<V> tail(const Enclosure<V>& x) {
  const V e = math::exp(-x.v);
  const double slope = static_cast<double>(e / (1 + e));
  return enclosure_detail::function(x, static_cast<V>(math::log1p(e)), -slope, slope * x.e * std::exp(x.e),
                                    2 * budget(Function::exp) + budget(Function::log));
}

struct BCEWithLogitsLoss {
  static constexpr std::string_view kName = "BCEWithLogitsLoss";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr std::string_view kDocumentation =
      R"(Y = -pos_weight t log(sigmoid(X)) - (1 - t) log(1 - sigmoid(X)), reduced, in the form that does not overflow:

  Y = (1 - t) X - w L with w = (pos_weight - 1) t + 1 and L = log(sigmoid(X)) = min(X, 0) - log(1 + exp(-|X|))

X and the target t of one shape, optional pos_weight that broadcasts to it. The mean is over all elements; of none it is undefined
(0 / 0). Source: torch.nn.BCEWithLogitsLoss. Frameworks also compute max(X, 0) - X t + log(1 + exp(-|X|)). One whose logarithm is that
of 1 + exp(-|X|) rounded loses the tail, where the loss itself is small: an approximation.)";
  static constexpr Arity kInputs{2, 3};
  static constexpr double kApproximationFloor = 1;
  static constexpr std::string_view kApproximationSource = "derived: 1 + exp(-|x|) is rounded by at most u";

  static std::vector<AttributeSpec> attributes() { return {reduction_attribute()}; }
  static std::vector<std::string_view> formulas() {
    return {"sum divided by the count", "sum times the reciprocal of the count",
            "max(x, 0) - x t + log(1 + exp(-|x|))"};
  }

  static Expected<Types> infer(const Call& call) {
    auto types = infer_elementwise_loss(call);
    if (!types || !call.has(2)) return types;
    if (call.dtype(2) != call.dtype(0))
      return make_error("pos_weight has type {}, X has {}", dtype_name(call.dtype(2)), dtype_name(call.dtype(0)));
    const auto shape = broadcast_shapes(call.shape(0), call.shape(2));
    if (!shape || *shape != call.shape(0))
      return make_error("pos_weight has shape {}, which does not broadcast to X {}", to_string(call.shape(2)),
                        to_string(call.shape(0)));
    return types;
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const auto x = frame.input(0), target = frame.input(1);
    const std::vector<T> factors = positive_factors(frame.call(), frame);
    reduce_losses(frame, static_cast<std::int64_t>(x.size()), [&](std::size_t i) {
      const bool negative = x[i] < 0;
      const T t(target[i]), score(x[i]);
      const T rest = tail(negative ? -score : score);
      if constexpr (std::is_same_v<T, double> || std::is_same_v<T, Quad>) {
        // The value itself in the form that cancels nowhere.
        const T p = factors.empty() ? T(1) : factors[i], w = (p - T(1)) * t + T(1);
        return negative ? w * rest - p * t * score : (T(1) - t) * score + w * rest;
      }
      if (frame.formula() == 2 && factors.empty()) return (negative ? T(0) : score) - score * t + rest;
      const T logarithm = negative ? score - rest : -rest;
      const T first = (T(1) - t) * score;
      return factors.empty() ? first - logarithm : first - ((factors[i] - T(1)) * t + T(1)) * logarithm;
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dX = (w sigmoid(X) - pos_weight t) dY, with dY divided by the count for the mean; the scores alone have a gradient. Frameworks
differentiate the stable form: (1 - t) - w sigmoid(-X), whose terms cancel elsewhere; torch works w out as pos_weight t + 1 - t and divides by
the count last.)";

  static std::vector<int> differentiable() { return {0}; }
  static std::vector<std::string_view> gradient_formulas() {
    return {"sigmoid(x) - t, divided by the count", "(1 - t) - w sigmoid(-x), divided by the count",
            "terms times the cotangent first", "(pos_weight t + 1 - t) sigmoid(x) - pos_weight t, divided last"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Call& call = frame.call();
    const auto x = frame.input(0), target = frame.input(1), dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    const std::vector<T> factors = positive_factors(call, frame);
    const LossReduction reduction = *loss_reduction(call);
    const T n(static_cast<double>(x.size()));
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const T t(target[i]), score(x[i]);
      T cotangent(dy[reduction == LossReduction::none ? i : 0]);
      const bool divides = reduction == LossReduction::mean, divides_last = frame.formula() == 3;
      if (divides && !divides_last) cotangent = cotangent / n;
      const T w = factors.empty() ? T(1) : (factors[i] - T(1)) * t + T(1);
      const auto weighted = [&](const T& y) { return factors.empty() ? y : w * y; };
      if (divides_last) {
        const T positive = factors.empty() ? t : factors[i] * t, probability = sigmoid(score, x[i] < 0);
        const T d = (factors.empty() ? probability - t : (positive + T(1) - t) * probability - positive) * cotangent;
        dx[i] = divides ? d / n : d;
      } else if (frame.formula() == 0) {
        dx[i] = (weighted(sigmoid(score, x[i] < 0)) - (factors.empty() ? t : factors[i] * t)) * cotangent;
      } else {
        const T falling = weighted(sigmoid(-score, !(x[i] < 0)));
        dx[i] =
            frame.formula() == 1 ? ((T(1) - t) - falling) * cotangent : (T(1) - t) * cotangent - falling * cotangent;
      }
    }
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const Shape shape = c.shape(0, 4, 9);
    const Tensor x = c.tensor(shape);
    std::vector<double> t(static_cast<std::size_t>(x.size()));
    const bool hard = rng.chance(0.5);
    for (double& v : t) v = hard ? static_cast<double>(rng.integer(0, 1)) : rng.uniform();
    std::vector<std::optional<Tensor>> inputs{x, Tensor::from_doubles(c.dtype(), shape, t)};
    if (rng.chance(0.4)) inputs.push_back(c.positive(shape.empty() ? shape : Shape{shape.back()}));
    Sample s = training_sample(c.make(kName, std::move(inputs)));
    sample_reduction(c, s);
    return s;
  }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = refused_elementwise_loss(kName);
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    samples.push_back(refused_sample(kName, {x, x, Tensor::zeros(DType::f32, {2})}, {}, "pos_weight"));
    samples.push_back(refused_sample(kName, {x, x, Tensor::zeros(DType::f16, {3})}, {}, "pos_weight"));
    return training_samples(std::move(samples));
  }

 private:
  template <class T, class Exact>
  static std::vector<T> broadcast(const Call& call, std::span<const Exact> given) {
    std::vector<T> factors;
    const Shape strides = broadcast_strides(call.shape(2), call.shape(0));
    for (std::int64_t i = 0; i < element_count(call.shape(0)); ++i) {
      const Shape at = unravel(i, call.shape(0));
      std::int64_t from = 0;
      for (std::size_t d = 0; d < at.size(); ++d) from += at[d] * strides[d];
      factors.push_back(T(given[static_cast<std::size_t>(from)]));
    }
    return factors;
  }
  // pos_weight of every element; empty where there is none.
  template <template <class> class AnyFrame, class T>
  static std::vector<T> positive_factors(const Call& call, AnyFrame<T>& frame) {
    return call.has(2) ? broadcast<T>(call, frame.input(2)) : std::vector<T>();
  }
  // 1 / (1 + exp(-x)), or with all its digits where it is small.
  template <class T>
  static T sigmoid(const T& x, bool negative) {
    if (!negative) return T(1) / (T(1) + exp(-x));
    const T e = exp(x);
    return e / (T(1) + e);
  }
};

}  // namespace

const MetaOperator& bce_with_logits_loss() {
  static const MetaOperator op = describe<BCEWithLogitsLoss>();
  return op;
}

}  // namespace opdiff::operators
