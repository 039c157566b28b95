// Gradients: the vector-Jacobian product of an operator, as a meta-operator of its own (domain kGradientDomain), so
// that the same ladder, attacks and laws judge it. Its node has the operator's inputs, then one cotangent per output of
// the operator ("" where there is none: zero), and one output per input of the operator ("" where it is not wanted).
//
//   gradient[k] = sum over outputs j of transpose(d output[j] / d input[k]) cotangent[j]
//
// An operator gives it as `template <class T> static void gradient(GradientFrame<T>&)` in its own struct, written as
// `forward` is. Operators that only move data have one already: what was read is added up.
#pragma once

#include <algorithm>

#include "ops/meta_operator.h"

namespace opdiff {

// The attribute that says how many of a gradient's inputs are cotangents; default 1.
inline constexpr const char* kCotangents = "cotangents";

// A call of a gradient, seen as a call of the operator with cotangents beside it.
class GradientCall {
 public:
  explicit GradientCall(const Call& call);
  GradientCall(const GradientCall&) = delete;
  GradientCall& operator=(const GradientCall&) = delete;

  // The operator's own call: its attributes and inputs, so that shape rules and geometry are shared with `forward`.
  const Call& forward() const { return forward_; }
  int input_count() const { return forward_.input_count(); }
  int cotangent_count() const { return call_.input_count() - input_count(); }
  bool has_cotangent(int output) const { return call_.has(input_count() + output); }
  // nullptr where there is none, or its value is not known yet.
  const Tensor* cotangent(int output) const { return call_.tensor(input_count() + output); }
  TensorType cotangent_type(int output) const;
  // Whether the gradient of input k is asked for.
  bool wants(int k) const { return call_.wants(static_cast<std::size_t>(k)); }

 private:
  const Call& call_;
  Node node_;
  Call forward_;
};

// What the formula of a gradient is written against.
template <class T>
class GradientFrame {
 public:
  using Exact = typename Frame<T>::Exact;

  explicit GradientFrame(Frame<T>& frame) : frame_(frame), gradient_(frame.call()) {}
  // Gradients that the formula left alone are zero.
  ~GradientFrame() {
    for (int k = 0; k < gradient_.input_count(); ++k)
      if (std::find(given_.begin(), given_.end(), k) == given_.end())
        frame_.output(k, call().has(k) ? call().shape(k) : Shape{0});
  }
  GradientFrame(const GradientFrame&) = delete;
  GradientFrame& operator=(const GradientFrame&) = delete;

  // The operator's call.
  const Call& call() const { return gradient_.forward(); }
  const GradientCall& gradient_call() const { return gradient_; }
  int formula() const { return frame_.formula(); }
  std::span<const Exact> input(int k) { return frame_.input(k); }
  bool has_cotangent(int output = 0) const { return gradient_.has_cotangent(output); }
  std::span<const Exact> cotangent(int output = 0) { return frame_.input(gradient_.input_count() + output); }
  static T parameter(double value) { return Frame<T>::parameter(value); }
  bool wants(int k) const { return gradient_.wants(k); }
  // The gradient of input k, all zero; it has that input's shape.
  std::span<T> gradient(int k) {
    given_.push_back(k);
    return frame_.output(k, call().shape(k));
  }
  // The same, piece by piece (Frame::output_pieces).
  template <class Fill>
  void gradient_pieces(int k, std::int64_t count, const Fill& fill) {
    given_.push_back(k);
    frame_.output_pieces(k, call().shape(k), count, fill);
  }

 private:
  Frame<T>& frame_;
  GradientCall gradient_;
  std::vector<int> given_;
};

namespace gradient_detail {

// The part of the shape rule that all gradients share: `outputs` is what the operator itself gives.
Expected<Types> infer(const GradientCall& gradient, const Expected<Types>& outputs,
                      std::span<const int> differentiable);
Expected<void> check_counts(const Call& call, const Arity& inputs, const Arity& outputs);
// A sample of the operator with cotangents; most of the time every gradient is wanted.
Sample add_cotangents(SampleContext& context, Sample sample, const Types& outputs, std::span<const int> differentiable);
// Wrong uses that every gradient refuses, made from a good one.
std::vector<Sample> refused(const Sample& good);
std::string_view documentation(std::string_view op, std::string_view own);

// The gradient of data movement: what was read from an element is added up. Instantiated for all scalars of Kernels.
template <class T>
void scatter(GradientFrame<T>& frame, const Movement& movement);

}  // namespace gradient_detail

template <class Op>
inline constexpr bool has_own_gradient = requires(GradientFrame<double>& f) { Op::gradient(f); };
template <class Op>
inline constexpr bool moves_data = requires(const Call& c) { Op::movement(c); };
template <class Op>
inline constexpr bool has_exact_gradient = requires(const GradientCall& c) { Op::gradient_exact(c); };
template <class Op>
inline constexpr bool has_gradient = has_own_gradient<Op> || has_exact_gradient<Op> || moves_data<Op>;

// Builds the table entry of an operator's gradient. Members `gradient_...` of the struct are those of the operator
// itself (formulas, convention_formulas, group_axes, reduction, conventions, unspecified), asked of a GradientCall.
template <class Op>
MetaOperator describe_gradient() {
  MetaOperator op;
  op.name = Op::kName;
  op.domain = kGradientDomain;
  if constexpr (requires { Op::kGradientDocumentation; })
    op.documentation = gradient_detail::documentation(op.name, Op::kGradientDocumentation);
  else
    op.documentation = gradient_detail::documentation(op.name, "");
  if constexpr (requires { Op::attributes(); }) op.attributes = Op::attributes();
  op.attributes.push_back({kCotangents, AttributeKind::integer, "how many of the inputs are cotangents; default 1"});
  static constexpr auto kInputs = [] {
    if constexpr (requires { Op::kInputs; })
      return Op::kInputs;
    else
      return Arity{1, 1};
  }();
  static constexpr auto kOutputs = [] {
    if constexpr (requires { Op::kOutputs; })
      return Op::kOutputs;
    else
      return Arity{1, 1};
  }();
  op.inputs = {kInputs.min + 1, kInputs.max < 0 ? -1 : kInputs.max + kOutputs.max};
  op.outputs = {1, kInputs.max};
  if constexpr (requires { Op::kTypes; }) op.types = Op::kTypes & kFloatTypes;
  if constexpr (requires { Op::kLeading; }) op.leading = Op::kLeading;
  if constexpr (requires { Op::gradient_formulas(); })
    op.formulas = Op::gradient_formulas();
  else
    op.formulas = {"definition"};
  if constexpr (requires { Op::gradient_convention_formulas(); })
    op.convention_formulas = Op::gradient_convention_formulas();
  if constexpr (requires { Op::product_inputs(); }) {
    op.product_inputs = Op::product_inputs();
    op.narrows_cotangents = true;
  }
  static const std::vector<int> differentiable = [] {
    if constexpr (requires { Op::differentiable(); }) return Op::differentiable();
    return moves_data<Op> ? std::vector<int>{0} : std::vector<int>();
  }();
  op.differentiable = differentiable;
  if constexpr (requires { Op::kGradientApproximationFloor; }) {
    op.approximation_floor = Op::kGradientApproximationFloor;
    op.approximation_source = Op::kGradientApproximationSource;
  }
  if constexpr (requires(const GradientCall& c) { Op::gradient_approximation_scale(c); })
    op.approximation_scale = [](const Call& call) { return Op::gradient_approximation_scale(GradientCall(call)); };

  op.infer = [](const Call& call) -> Expected<Types> {
    OPDIFF_RETURN_IF_ERROR(gradient_detail::check_counts(call, kInputs, kOutputs));
    const GradientCall gradient(call);
    const auto outputs = Op::infer(gradient.forward());
    if constexpr (requires { Op::check_gradient(gradient.forward()); })
      if (outputs) OPDIFF_RETURN_IF_ERROR(Op::check_gradient(gradient.forward()));
    return gradient_detail::infer(gradient, outputs, differentiable);
  };
  op.output_dtype = [](const Call& call, int output) { return call.has(output) ? call.dtype(output) : call.dtype(0); };

  if constexpr (has_exact_gradient<Op>) {
    op.exact = [](const Call& call) { return Op::gradient_exact(GradientCall(call)); };
  } else {
    const auto kernel = []<class T>(Frame<T>& frame) {
      GradientFrame<T> gradient(frame);
      if constexpr (has_own_gradient<Op>)
        Op::gradient(gradient);
      else
        gradient_detail::scatter(gradient, Op::movement(gradient.call()));
    };
    op.kernels.f64 = kernel;
    op.kernels.quad = kernel;
    op.kernels.enclosure = kernel;
    op.kernels.enclosure_quad = kernel;
    op.kernels.working = kernel;
    op.kernels.dual = kernel;
  }

  if constexpr (requires(const GradientCall& c) { Op::gradient_group_axes(c, 0); })
    op.group_axes = [](const Call& call, int k) { return Op::gradient_group_axes(GradientCall(call), k); };
  if constexpr (requires(const GradientCall& c) { Op::gradient_reduction(c, 0, 0); })
    op.reduction = [](const Call& call, int k, std::int64_t index) {
      return Op::gradient_reduction(GradientCall(call), k, index);
    };
  if constexpr (requires(const GradientCall& c) { Op::gradient_algorithms(c); })
    op.algorithms = [](const Call& call) { return Op::gradient_algorithms(GradientCall(call)); };
  if constexpr (requires(const GradientCall& c) { Op::gradient_conventions(c); })
    op.conventions = [](const Call& call) { return Op::gradient_conventions(GradientCall(call)); };
  if constexpr (requires(const GradientCall& c) { Op::gradient_unspecified(c, 0); })
    op.unspecified = [](const Call& call, int k) { return Op::gradient_unspecified(GradientCall(call), k); };

  op.sample = [](SampleContext& context) {
    for (;;) {
      Sample sample = Op::sample(context);
      const auto inputs = sample.pointers();
      const Call call(sample.node, sample.opset, inputs);
      const auto outputs = Op::infer(call);
      OPDIFF_CHECK(outputs.has_value());
      if constexpr (requires { Op::check_gradient(call); })
        if (!Op::check_gradient(call)) continue;
      if (is_float((*outputs)[0].dtype))  // a Cast to integers has no gradient
        return gradient_detail::add_cotangents(context, std::move(sample), *outputs, differentiable);
    }
  };
  op.refused = [] {
    const MetaOperator self = describe_gradient<Op>();
    for (std::uint64_t index = 0;; ++index) {
      SampleContext context(Op::kName, DType::f32, 0, index);
      const Sample good = self.sample(context);
      if (good.inputs[0]->size() > 0) return gradient_detail::refused(good);
    }
  };
  return op;
}

}  // namespace opdiff
