#include "ops/loss.h"

namespace opdiff::operators {
namespace {

struct NegativeLogLikelihoodLoss {
  static constexpr std::string_view kName = "NegativeLogLikelihoodLoss";
  static constexpr std::string_view kDocumentation =
      R"(Y[n, d] = -weight[l] X[n, l, d] with l = target[n, d], reduced; the mean divides by the sum of the weights that were used

X [N, C, ...] (log probabilities), target [N, ...] (int32 or int64), optional weight [C]. A position whose target is ignore_index
counts zero, in the sum of weights too; a mean in which nothing is left is undefined (0 / 0). A target that is neither a class nor
ignore_index is an error. Weights may multiply the terms before the division or be divided first.)";
  static constexpr Arity kInputs{2, 3};

  static std::vector<AttributeSpec> attributes() {
    return {{"ignore_index", AttributeKind::integer, "target that counts zero; default none"}, reduction_attribute()};
  }
  static std::vector<std::string_view> formulas() {
    return {"sum divided by the weights", "weights divided by their sum first"};
  }

  static Expected<Types> infer(const Call& call) {
    if (call.opset() < 12) return make_error("the operator exists from opset 12 on (opset {})", call.opset());
    OPDIFF_RETURN_IF_ERROR(check_class_loss(call, std::nullopt));
    const bool none = *loss_reduction(call) == LossReduction::none;
    return Types{{call.dtype(0), none ? without_classes(call.shape(0)) : Shape{}}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const ClassRows rows(call.shape(0));
    const Labels labels(call, std::nullopt);
    const auto x = frame.input(0);
    const bool weighted = call.has(2);
    const LossReduction reduction = *loss_reduction(call);
    const auto y = frame.output(0, reduction == LossReduction::none ? without_classes(call.shape(0)) : Shape{});
    const auto weight = [&](std::int64_t label) {
      return weighted ? T(frame.input(2)[static_cast<std::size_t>(label)]) : T(1);
    };
    Sum<T> weights;
    for (std::int64_t row = 0; row < rows.count(); ++row)
      if (labels[row] >= 0) weights.add(weight(labels[row]));
    const T total = weights.result();
    const bool divides_first = reduction == LossReduction::mean && frame.formula() == 1;
    Sum<T> sum;
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const std::int64_t label = labels[row];
      T term(0);
      if (label >= 0) {
        const T factor = divides_first ? weight(label) / total : weight(label);
        term = factor * -T(x[rows.at(row, label)]);
      }
      if (reduction == LossReduction::none)
        y[static_cast<std::size_t>(row)] = term;
      else if (label >= 0)
        sum.add(term);
    }
    if (reduction == LossReduction::none) return;
    y[0] = sum.result();
    if (reduction == LossReduction::mean && (!divides_first || !(total > T(0)))) y[0] = y[0] / total;
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX[n, l, d] = -weight[l] dY, divided by the sum of the weights for the mean; zero for all other classes. X "
      "alone "
      "has a gradient. The quotient is taken of the cotangent, of the weight or of their product.";

  static std::vector<int> differentiable() { return {0}; }
  static std::vector<std::string_view> gradient_formulas() {
    return {"cotangent divided first", "product divided", "weight divided first"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Call& call = frame.call();
    const ClassRows rows(call.shape(0));
    const Labels labels(call, std::nullopt);
    const auto dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    const LossReduction reduction = *loss_reduction(call);
    const auto weight = [&](std::int64_t label) {
      return call.has(2) ? T(frame.input(2)[static_cast<std::size_t>(label)]) : T(1);
    };
    Sum<T> weights;
    for (std::int64_t row = 0; row < rows.count(); ++row)
      if (labels[row] >= 0) weights.add(weight(labels[row]));
    const T total = reduction == LossReduction::mean ? share(weights.result(), 0) : T(1);
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const std::int64_t label = labels[row];
      if (label < 0) continue;
      const T cotangent(dy[reduction == LossReduction::none ? static_cast<std::size_t>(row) : 0]), w = weight(label);
      dx[rows.at(row, label)] = -(frame.formula() == 0   ? cotangent / total * w
                                  : frame.formula() == 1 ? cotangent * w / total
                                                         : w / total * cotangent);
    }
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const bool ignores = rng.chance(0.4);
    const std::int64_t ignored = rng.chance(0.5) ? rng.integer(0, 2) : -1;
    Sample s = c.make(kName, sample_classes(c, ignores ? std::optional(ignored) : std::nullopt));
    s.opset = std::max(s.opset, c.dtype() == DType::bf16 ? 22 : 12);
    if (ignores) s.node.attributes["ignore_index"] = ignored;
    sample_reduction(c, s);
    return s;
  }

  static std::vector<Sample> refused() { return refused_onnx_class_loss(kName); }
};

}  // namespace

const MetaOperator& negative_log_likelihood_loss() {
  static const MetaOperator op = describe<NegativeLogLikelihoodLoss>();
  return op;
}

}  // namespace opdiff::operators
