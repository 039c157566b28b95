// What the losses have in common: reductions, class scores [N, C, ...] with integer labels [N, ...], log softmax over
// axis 1 and its gradient.
#pragma once

#include <string>

#include "ops/op.h"

namespace opdiff {

enum class LossReduction { none, sum, mean };

inline AttributeSpec reduction_attribute() {
  return {"reduction", AttributeKind::text, "none, sum or mean (default) of the elements' losses"};
}

inline Expected<LossReduction> loss_reduction(const Call& call) {
  const std::string name = call.text("reduction", "mean");
  if (name == "none") return LossReduction::none;
  if (name == "sum") return LossReduction::sum;
  if (name == "mean") return LossReduction::mean;
  return make_error("attribute 'reduction' is '{}', expected none, sum or mean", name);
}

// A loss of training samples: a domain of its own and attributes set.
inline Sample training_sample(Sample sample) {
  sample.node.domain = kTrainingDomain;
  return sample;
}
inline std::vector<Sample> training_samples(std::vector<Sample> samples) {
  for (Sample& sample : samples) sample.node.domain = kTrainingDomain;
  return samples;
}
inline void sample_reduction(SampleContext& c, Sample& sample) {
  static constexpr const char* kNames[] = {"none", "sum", "mean"};
  if (c.rng().chance(0.8)) sample.node.attributes["reduction"] = std::string(c.rng().pick(kNames));
}

// --- elementwise losses of X and a target of X's shape ---

inline Expected<Types> infer_elementwise_loss(const Call& call) {
  OPDIFF_TRY(const LossReduction reduction, loss_reduction(call));
  if (call.dtype(1) != call.dtype(0))
    return make_error("the target has type {}, X has {}", dtype_name(call.dtype(1)), dtype_name(call.dtype(0)));
  if (call.shape(1) != call.shape(0))
    return make_error("the target has shape {}, X has {}", to_string(call.shape(1)), to_string(call.shape(0)));
  return Types{{call.dtype(0), reduction == LossReduction::none ? call.shape(0) : Shape{}}};
}

// loss(i) for every element, reduced. The mean divides by the count, or multiplies by its reciprocal (formula 1).
template <class T, class F>
void reduce_losses(Frame<T>& frame, std::int64_t count, F loss) {
  const LossReduction reduction = *loss_reduction(frame.call());
  if (reduction == LossReduction::none) {
    const auto y = frame.output(0, frame.call().shape(0));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = loss(i);
    return;
  }
  const auto y = frame.output(0, {});
  Sum<T> sum;
  for (std::int64_t i = 0; i < count; ++i) sum.add(loss(static_cast<std::size_t>(i)));
  y[0] = sum.result();
  if (reduction == LossReduction::sum) return;
  const T n(static_cast<double>(count));
  y[0] = frame.formula() == 1 ? y[0] * (T(1) / n) : y[0] / n;
}

// The gradients of an elementwise loss of x - target: slope(i, c) is the derivative of element i times c, the cotangent
// (divided by the count where the reduction is the mean: formula 0 divides it, 1 divides the product, 2 multiplies the
// slope by the reciprocal first).
template <class T, class F>
void difference_slopes(GradientFrame<T>& frame, F slope) {
  const Call& call = frame.call();
  const LossReduction reduction = *loss_reduction(call);
  const auto dy = frame.cotangent();
  const T n(static_cast<double>(element_count(call.shape(0))));
  for (int k = 0; k < 2; ++k) {
    if (!frame.wants(k)) continue;
    const auto dx = frame.gradient(k);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const T cotangent(dy[reduction == LossReduction::none ? i : 0]);
      T d;
      if (reduction != LossReduction::mean)
        d = slope(i, cotangent);
      else if (frame.formula() == 0)
        d = slope(i, cotangent / n);
      else if (frame.formula() == 1)
        d = slope(i, cotangent) / n;
      else
        d = slope(i, T(1) / n) * cotangent;
      dx[i] = k == 0 ? d : -d;
    }
  }
}

inline std::vector<std::string_view> difference_slope_formulas() {
  return {"cotangent divided by the count", "product divided by the count", "reciprocal of the count first"};
}

inline Sample sample_elementwise_loss(SampleContext& c, std::string_view op) {
  const Shape shape = c.shape(0, 4, 9);
  const Tensor x = c.tensor(shape);
  Tensor target = c.tensor(shape);
  if (c.rng().chance(0.3)) {  // a prediction near its target
    std::vector<double> values = x.to_doubles();
    for (double& v : values)
      if (c.rng().chance(0.8)) v *= 1 + 0.01 * c.rng().normal();
    target = Tensor::from_doubles(c.dtype(), shape, values);
  }
  Sample sample = training_sample(c.make(op, {x, target}));
  sample_reduction(c, sample);
  return sample;
}

inline std::vector<Sample> refused_elementwise_loss(std::string_view op) {
  const Tensor x = Tensor::zeros(DType::f32, {2, 3});
  return training_samples({refused_sample(op, {x, Tensor::zeros(DType::f32, {2})}, {}, "shape"),
                           refused_sample(op, {x, Tensor::zeros(DType::f64, {2, 3})}, {}, "type"),
                           refused_sample(op, {x, x}, {{"reduction", std::string("average")}}, "reduction"),
                           refused_sample(op, {x}, {}, "inputs"),
                           refused_sample(op, {Tensor::zeros(DType::i32, {2, 3}), x}, {}, "type")});
}

// --- losses of class scores ---

// Row r = (n, position) of scores [N, C, ...]: its class c is at element at(r, c).
struct ClassRows {
  std::int64_t batch = 1, classes = 1, positions = 1;

  explicit ClassRows(const Shape& scores) : batch(scores[0]), classes(scores[1]) {
    for (std::size_t d = 2; d < scores.size(); ++d) positions *= scores[d];
  }
  std::int64_t count() const { return batch * positions; }
  std::size_t at(std::int64_t row, std::int64_t c) const {
    return static_cast<std::size_t>((row / positions * classes + c) * positions + row % positions);
  }
};

inline Shape without_classes(const Shape& scores) {
  Shape shape{scores[0]};
  shape.insert(shape.end(), scores.begin() + 2, scores.end());
  return shape;
}

// The label of a row, or -1 where it is ignored.
class Labels {
 public:
  // `otherwise`: the label that is ignored where the attribute is absent.
  Labels(const Call& call, std::optional<std::int64_t> otherwise) : labels_(*call.tensor(1)), ignored_(otherwise) {
    if (call.has_attribute("ignore_index")) ignored_ = call.integer("ignore_index", 0);
  }
  bool ignores(std::int64_t row) const { return ignored_ == labels_.int_at(row); }
  std::int64_t operator[](std::int64_t row) const { return ignores(row) ? -1 : labels_.int_at(row); }

 private:
  const Tensor& labels_;
  std::optional<std::int64_t> ignored_;
};

// Types and shapes of scores, labels and weights; labels that are known must be classes or ignored.
inline Expected<void> check_class_loss(const Call& call, std::optional<std::int64_t> otherwise) {
  const Shape& x = call.shape(0);
  if (x.size() < 2) return make_error("the scores have shape {}, expected [N, C, ...]", to_string(x));
  if (call.dtype(1) != DType::i32 && call.dtype(1) != DType::i64)
    return make_error("the labels have type {}, expected int32 or int64", dtype_name(call.dtype(1)));
  if (call.shape(1) != without_classes(x))
    return make_error("the labels have shape {}, expected {} for scores {}", to_string(call.shape(1)),
                      to_string(without_classes(x)), to_string(x));
  if (call.has(2)) {
    if (call.dtype(2) != call.dtype(0))
      return make_error("the weights have type {}, the scores have {}", dtype_name(call.dtype(2)),
                        dtype_name(call.dtype(0)));
    if (call.shape(2) != Shape{x[1]})
      return make_error("the weights have shape {}, expected [{}]", to_string(call.shape(2)), x[1]);
  }
  OPDIFF_TRY(const LossReduction reduction, loss_reduction(call));
  static_cast<void>(reduction);
  if (!call.tensor(1)) return {};
  const Labels labels(call, otherwise);
  for (std::int64_t row = 0; row < call.tensor(1)->size(); ++row)
    if (const std::int64_t label = call.tensor(1)->int_at(row); !labels.ignores(row) && (label < 0 || label >= x[1]))
      return make_error("label {} is {}, expected a class of [0, {}){}", to_string(unravel(row, call.shape(1))), label,
                        x[1], otherwise || call.has_attribute("ignore_index") ? " or ignore_index" : "");
  return {};
}

// Y = X - max X - log(sum exp(X - max X)) of one row; `sums_first` adds the maximum to the logarithm before it
// subtracts.
template <class T, class Exact, class Write>
void log_softmax_row(const ClassRows& rows, std::int64_t row, std::span<const Exact> x, bool sums_first, Write write) {
  if (rows.classes == 0) return;
  Exact largest = x[rows.at(row, 0)];
  for (std::int64_t c = 1; c < rows.classes; ++c) largest = maximum(largest, x[rows.at(row, c)]);
  Sum<T> sum;
  for (std::int64_t c = 0; c < rows.classes; ++c) sum.add(exp(T(x[rows.at(row, c)]) - T(largest)));
  const T logarithm = log(sum.result());
  const T both = T(largest) + logarithm;
  for (std::int64_t c = 0; c < rows.classes; ++c) {
    const T score(x[rows.at(row, c)]);
    write(c, sums_first ? score - both : score - T(largest) - logarithm);
  }
}

// softmax of one row, shared errors marked; `stored`: as the exponential of a rounded log softmax.
template <class T, class Exact, class Write>
void softmax_row(const ClassRows& rows, std::int64_t row, std::span<const Exact> x, bool stored, Write write) {
  if (rows.classes == 0) return;
  Exact largest = x[rows.at(row, 0)];
  for (std::int64_t c = 1; c < rows.classes; ++c) largest = maximum(largest, x[rows.at(row, c)]);
  Sum<T> sum;
  for (std::int64_t c = 0; c < rows.classes; ++c) sum.add(exp(T(x[rows.at(row, c)]) - T(largest)));
  const T total = share(sum.result(), 0), logarithm = log(total);
  for (std::int64_t c = 0; c < rows.classes; ++c) {
    const T shifted = T(x[rows.at(row, c)]) - T(largest);
    write(c, stored ? exp(shifted - logarithm) : exp(shifted) / total);
  }
}

// Axes that tell rows of [N, C, ...] apart.
inline std::vector<int> class_row_axes(std::int64_t rank) {
  std::vector<int> axes{0};
  for (int d = 2; d < static_cast<int>(rank); ++d) axes.push_back(d);
  return axes;
}
inline std::vector<int> all_axes(std::int64_t rank) {
  std::vector<int> axes;
  for (int d = 0; d < static_cast<int>(rank); ++d) axes.push_back(d);
  return axes;
}

// Scores, labels (some ignored, if `ignored` is given), weights most of the time.
inline std::vector<std::optional<Tensor>> sample_classes(SampleContext& c, std::optional<std::int64_t> ignored) {
  Rng& rng = c.rng();
  Shape shape = c.shape(2, 4, 6);
  if (rng.chance(0.3)) shape[1] = c.extent(2, 60);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(element_count(without_classes(shape))));
  for (auto& label : labels) label = ignored && rng.chance(0.2) ? *ignored : rng.integer(0, shape[1] - 1);
  std::vector<std::optional<Tensor>> inputs{
      c.tensor(shape), Tensor::from_int64s(rng.chance(0.5) ? DType::i64 : DType::i32, without_classes(shape), labels)};
  if (rng.chance(0.4)) inputs.push_back(c.positive({shape[1]}));
  return inputs;
}

inline std::vector<Sample> refused_class_loss(std::string_view op) {
  const Tensor x = Tensor::zeros(DType::f32, {2, 3, 4}), labels = Tensor::zeros(DType::i64, {2, 4});
  const std::vector<std::int64_t> three{0, 1, 2, 0, 0, 3, 0, 0};
  return {refused_sample(op, {x, Tensor::zeros(DType::i64, {2, 3})}, {}, "labels"),
          refused_sample(op, {x, Tensor::zeros(DType::f32, {2, 4})}, {}, "type"),
          refused_sample(op, {x, Tensor::from_int64s(DType::i64, {2, 4}, three)}, {}, "label [1,1] is 3"),
          refused_sample(op, {x, labels, Tensor::zeros(DType::f32, {4})}, {}, "weights"),
          refused_sample(op, {x, labels, Tensor::zeros(DType::f64, {3})}, {}, "weights"),
          refused_sample(op, {x, labels}, {{"reduction", std::string("average")}}, "reduction"),
          refused_sample(op, {Tensor::zeros(DType::f32, {2}), labels}, {}, "[N, C, ...]"),
          refused_sample(op, {x}, {}, "inputs")};
}

// Of the losses that ONNX has, from opset 12 on.
inline std::vector<Sample> refused_onnx_class_loss(std::string_view op) {
  std::vector<Sample> samples = refused_class_loss(op);
  const Tensor x = Tensor::zeros(DType::f32, {2, 3, 4}), labels = Tensor::zeros(DType::i64, {2, 4});
  samples.push_back(refused_sample(op, {x, labels}, {}, "opset 12", 11));
  return samples;
}

}  // namespace opdiff
