#include "ops/loss.h"

namespace opdiff::operators {
namespace {

struct CrossEntropyLoss {
  static constexpr std::string_view kName = "CrossEntropyLoss";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr std::string_view kDocumentation =
      R"(p = log softmax of the scores over axis 1; with l the label and s = label_smoothing,

  Y[n, d] = -(1 - s) weight[l] p[l] - s / C sum over c of weight[c] p[c]

scores [N, C, ...], labels [N, ...] (int32 or int64), optional weights [C]. Positions whose label is ignore_index count zero. The mean
divides both parts by the sum of weight[l] over the positions that count (not by that of all weights), as torch.nn.CrossEntropyLoss
does; where nothing counts it is undefined (0 / 0). Implementations reduce the two parts and then combine them, or weigh the terms of
every position. A label that is neither a class nor ignore_index is an error.)";
  static constexpr Arity kInputs{2, 3};

  static std::vector<AttributeSpec> attributes() {
    return {{"ignore_index", AttributeKind::integer, "label that counts zero; default -100"},
            {"label_smoothing", AttributeKind::real, "share of the uniform distribution, in [0, 1]; default 0"},
            reduction_attribute()};
  }
  static std::vector<std::string_view> formulas() {
    return {"parts reduced, then combined", "x - (m + log(sum))", "terms combined, then reduced"};
  }

  static Expected<Types> infer(const Call& call) {
    if (const double s = call.real("label_smoothing", 0); !(s >= 0 && s <= 1))
      return make_error("attribute 'label_smoothing' is {}, expected [0, 1]", s);
    OPDIFF_RETURN_IF_ERROR(check_class_loss(call, kIgnored));
    const bool none = *loss_reduction(call) == LossReduction::none;
    return Types{{call.dtype(0), none ? without_classes(call.shape(0)) : Shape{}}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const ClassRows rows(call.shape(0));
    const Labels labels(call, kIgnored);
    const auto x = frame.input(0);
    const Factors<T> factors(call);
    const LossReduction reduction = *loss_reduction(call);
    const auto y = frame.output(0, reduction == LossReduction::none ? without_classes(call.shape(0)) : Shape{});
    const auto weight = [&](std::int64_t label) {
      return call.has(2) ? T(frame.input(2)[static_cast<std::size_t>(label)]) : T(1);
    };
    Sum<T> weights, sharp, smooth, both;
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const std::int64_t label = labels[row];
      T own(0), combined(0);
      if (label >= 0) {
        weights.add(weight(label));
        Sum<T> all;
        log_softmax_row<T>(rows, row, x, frame.formula() == 1, [&](std::int64_t c, const T& value) {
          if (c == label) own = weight(c) * -value;
          if (factors.smooths) all.add(weight(c) * -value);
        });
        combined = own;
        if (factors.smooths) {
          const T rest = all.result();
          combined = factors.sharp * own + factors.smooth * rest;
          smooth.add(rest);
        }
        sharp.add(own);
        both.add(combined);
      }
      if (reduction == LossReduction::none) y[static_cast<std::size_t>(row)] = combined;
    }
    if (reduction == LossReduction::none) return;
    const T total = weights.result();
    const auto reduced = [&](const Sum<T>& sum) {
      return reduction == LossReduction::mean ? sum.result() / total : sum.result();
    };
    if (frame.formula() == 2)
      y[0] = reduced(both);
    else if (factors.smooths)
      y[0] = factors.sharp * reduced(sharp) + factors.smooth * reduced(smooth);
    else
      y[0] = reduced(sharp);
  }

  static constexpr std::string_view kGradientDocumentation =
      R"(dscores[c] = softmax[c] sum(h) - h[c] with h[c] = dY ((1 - s) weight[l] [c = l] + s / C weight[c]), divided by the sum of weight[l]
for the mean; zero where the label is ignored. The scores alone have a gradient. Frameworks take softmax itself or the exponential of
a stored log softmax, whose rounding it magnifies.)";

  static std::vector<int> differentiable() { return {0}; }
  static std::vector<std::string_view> gradient_formulas() {
    return {"h (softmax - 1) where h is of one class", "softmax sum(h) - h", "with exp(log softmax)"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Call& call = frame.call();
    const ClassRows rows(call.shape(0));
    const Labels labels(call, kIgnored);
    const auto x = frame.input(0), dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    const Factors<T> factors(call);
    const LossReduction reduction = *loss_reduction(call);
    const auto weight = [&](std::int64_t label) {
      return call.has(2) ? T(frame.input(2)[static_cast<std::size_t>(label)]) : T(1);
    };
    Sum<T> weights;
    for (std::int64_t row = 0; row < rows.count(); ++row)
      if (labels[row] >= 0) weights.add(weight(labels[row]));
    const T total = weights.result();
    std::vector<T> h(static_cast<std::size_t>(rows.classes));
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const std::int64_t label = labels[row];
      if (label < 0) continue;
      T cotangent(dy[reduction == LossReduction::none ? static_cast<std::size_t>(row) : 0]);
      if (reduction == LossReduction::mean) cotangent = cotangent / total;
      Sum<T> all;
      for (std::int64_t c = 0; c < rows.classes; ++c) {
        T& own = h[static_cast<std::size_t>(c)];
        own = c == label ? factors.sharp * cotangent * weight(c) : T(0);
        if (factors.smooths) own = own + factors.smooth * cotangent * weight(c);
        if (c == label || factors.smooths) all.add(own);
      }
      const T sum = share(all.result(), 1);
      softmax_row<T>(rows, row, x, frame.formula() == 2, [&](std::int64_t c, const T& y) {
        if (factors.smooths)
          dx[rows.at(row, c)] = y * sum - h[static_cast<std::size_t>(c)];
        else
          dx[rows.at(row, c)] = c != label ? y * sum : frame.formula() == 0 ? sum * (y - T(1)) : y * sum - sum;
      });
    }
  }

  static std::vector<int> gradient_group_axes(const GradientCall& gradient, int) {
    return class_row_axes(gradient.forward().rank(0));
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const bool ignores = rng.chance(0.4), names = rng.chance(0.5);
    const std::int64_t ignored = names ? rng.integer(-1, 2) : kIgnored;
    Sample s = training_sample(c.make(kName, sample_classes(c, ignores ? std::optional(ignored) : std::nullopt)));
    if (ignores && names) s.node.attributes["ignore_index"] = ignored;
    if (rng.chance(0.5)) s.node.attributes["label_smoothing"] = static_cast<float>(rng.pick(kSmoothings));
    sample_reduction(c, s);
    return s;
  }

  static std::vector<Sample> refused() {
    std::vector<Sample> samples = refused_class_loss(kName);
    samples.push_back(refused_sample(kName, {Tensor::zeros(DType::f32, {1, 3}), Tensor::zeros(DType::i64, {1})},
                                     {{"label_smoothing", 1.5f}}, "label_smoothing"));
    return training_samples(std::move(samples));
  }

 private:
  static constexpr std::int64_t kIgnored = -100;
  static constexpr double kSmoothings[] = {0, 0.1, 0.3, 1};

  // 1 - s and s / C, as an implementation has them: worked out in double and rounded once.
  template <class T>
  struct Factors {
    explicit Factors(const Call& call)
        : smooths(call.real("label_smoothing", 0) > 0),
          sharp(Frame<T>::parameter(1 - call.real("label_smoothing", 0))),
          smooth(Frame<T>::parameter(call.real("label_smoothing", 0)) / T(static_cast<double>(call.shape(0)[1]))) {}
    bool smooths;
    T sharp, smooth;
  };
};

}  // namespace

const MetaOperator& cross_entropy_loss() {
  static const MetaOperator op = describe<CrossEntropyLoss>();
  return op;
}

}  // namespace opdiff::operators
