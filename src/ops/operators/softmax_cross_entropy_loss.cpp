#include "ops/loss.h"

namespace opdiff::operators {
namespace {

struct SoftmaxCrossEntropyLoss {
  static constexpr std::string_view kName = "SoftmaxCrossEntropyLoss";
  static constexpr std::string_view kDocumentation =
      R"(log_prob = log softmax of the scores over axis 1; Y[n, d] = -weight[l] log_prob[n, l, d] with l = labels[n, d], reduced

scores [N, C, ...], labels [N, ...] (int32 or int64), optional weights [C]; outputs the loss and, where it is named, log_prob of the
scores' shape. The mean divides by the sum of the weights that were used. A position whose label is ignore_index counts zero, in the
sum of weights too; a mean in which nothing is left is undefined (0 / 0). A label that is neither a class nor ignore_index is an
error. The maximum must be subtracted (LogSoftmax). Source: ONNX; torch's cross_entropy without smoothing is the same.)";
  static constexpr Arity kInputs{2, 3};
  static constexpr Arity kOutputs{1, 2};

  static std::vector<AttributeSpec> attributes() {
    return {{"ignore_index", AttributeKind::integer, "label that counts zero; default none"}, reduction_attribute()};
  }
  static std::vector<std::string_view> formulas() {
    return {"x - m - log(sum)", "x - (m + log(sum))", "weights divided by their sum first"};
  }

  static Expected<Types> infer(const Call& call) {
    if (call.opset() < 12) return make_error("the operator exists from opset 12 on (opset {})", call.opset());
    OPDIFF_RETURN_IF_ERROR(check_class_loss(call, std::nullopt));
    const bool none = *loss_reduction(call) == LossReduction::none;
    Types types{{call.dtype(0), none ? without_classes(call.shape(0)) : Shape{}}};
    if (call.node().outputs.size() > 1) types.push_back({call.dtype(0), call.shape(0)});
    return types;
  }

  static DType output_dtype(const Call& call, int) { return call.dtype(0); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const ClassRows rows(call.shape(0));
    const Labels labels(call, std::nullopt);
    const auto x = frame.input(0);
    const LossReduction reduction = *loss_reduction(call);
    if (call.node().outputs.size() > 1) frame.output(1, call.shape(0));
    const auto y = frame.output(0, reduction == LossReduction::none ? without_classes(call.shape(0)) : Shape{});
    const auto log_prob = call.node().outputs.size() > 1 ? frame.output(1, call.shape(0)) : std::span<T>();
    const auto weight = [&](std::int64_t label) {
      return call.has(2) ? T(frame.input(2)[static_cast<std::size_t>(label)]) : T(1);
    };
    Sum<T> weights;
    for (std::int64_t row = 0; row < rows.count(); ++row)
      if (labels[row] >= 0) weights.add(weight(labels[row]));
    const T total = weights.result();
    const bool divides_first = reduction == LossReduction::mean && frame.formula() == 2;
    Sum<T> sum;
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const std::int64_t label = labels[row];
      T term(0);
      log_softmax_row<T>(rows, row, x, frame.formula() == 1, [&](std::int64_t c, const T& value) {
        if (!log_prob.empty()) log_prob[rows.at(row, c)] = value;
        if (c == label) term = (divides_first ? weight(label) / total : weight(label)) * -value;
      });
      if (reduction == LossReduction::none)
        y[static_cast<std::size_t>(row)] = term;
      else if (label >= 0)
        sum.add(term);
    }
    if (reduction == LossReduction::none) return;
    y[0] = sum.result();
    if (reduction == LossReduction::mean && (!divides_first || !(total > T(0)))) y[0] = y[0] / total;
  }

  static std::vector<int> group_axes(const Call& call, int output) {
    if (output == 1) return class_row_axes(call.rank(0));
    return *loss_reduction(call) == LossReduction::none ? all_axes(call.rank(0) - 1) : std::vector<int>();
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dscores = t (softmax - [c = l]) with t = weight[l] dY, divided by the sum of the weights for the mean; zero where the label is
ignored. A cotangent of log_prob adds dlog_prob - softmax sum dlog_prob. The scores alone have a gradient. Frameworks multiply the
difference or its terms, and take softmax itself or the exponential of a stored log_prob, whose rounding it magnifies.)";

  static std::vector<int> differentiable() { return {0}; }
  static std::vector<std::string_view> gradient_formulas() {
    return {"t (softmax - [c = l])", "t softmax - t [c = l]", "with exp(log_prob)"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Call& call = frame.call();
    const ClassRows rows(call.shape(0));
    const Labels labels(call, std::nullopt);
    const auto x = frame.input(0);
    const auto dx = frame.gradient(0);
    const LossReduction reduction = *loss_reduction(call);
    const auto weight = [&](std::int64_t label) {
      return call.has(2) ? T(frame.input(2)[static_cast<std::size_t>(label)]) : T(1);
    };
    const bool of_loss = frame.has_cotangent(0);
    const bool of_log_prob = frame.gradient_call().cotangent_count() > 1 && frame.has_cotangent(1);
    Sum<T> weights;
    for (std::int64_t row = 0; row < rows.count(); ++row)
      if (labels[row] >= 0) weights.add(weight(labels[row]));
    const T total = weights.result();
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const std::int64_t label = labels[row];
      T t(0), sum(0);
      if (of_loss && label >= 0) {
        const T dy(frame.cotangent(0)[reduction == LossReduction::none ? static_cast<std::size_t>(row) : 0]);
        t = share(reduction == LossReduction::mean ? dy / total * weight(label) : dy * weight(label), 1);
      }
      if (of_log_prob) {
        Sum<T> all;
        for (std::int64_t c = 0; c < rows.classes; ++c) all.add(T(frame.cotangent(1)[rows.at(row, c)]));
        sum = share(all.result(), 1);
      }
      softmax_row<T>(rows, row, x, frame.formula() == 2, [&](std::int64_t c, const T& y) {
        T d(0);
        if (label >= 0) d = c != label ? t * y : frame.formula() == 0 ? t * (y - T(1)) : t * y - t;
        if (of_log_prob) d = d + (T(frame.cotangent(1)[rows.at(row, c)]) - y * sum);
        dx[rows.at(row, c)] = d;
      });
    }
  }

  static std::vector<int> gradient_group_axes(const GradientCall& gradient, int) {
    return class_row_axes(gradient.forward().rank(0));
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const bool ignores = rng.chance(0.4);
    const std::int64_t ignored = rng.chance(0.5) ? rng.integer(0, 2) : -1;
    Sample s =
        c.make(kName, sample_classes(c, ignores ? std::optional(ignored) : std::nullopt), rng.chance(0.4) ? 2 : 1);
    s.opset = std::max(s.opset, c.dtype() == DType::bf16 ? 13 : 12);
    if (ignores) s.node.attributes["ignore_index"] = ignored;
    sample_reduction(c, s);
    return s;
  }

  static std::vector<Sample> refused() { return refused_onnx_class_loss(kName); }
};

}  // namespace

const MetaOperator& softmax_cross_entropy_loss() {
  static const MetaOperator op = describe<SoftmaxCrossEntropyLoss>();
  return op;
}

}  // namespace opdiff::operators
