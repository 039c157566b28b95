#include "ops/rows.h"

namespace opdiff::operators {
namespace {

struct LogSoftmax {
  static constexpr std::string_view kName = "LogSoftmax";
  static constexpr std::string_view kDocumentation = R"(Y = X - max X - log(sum exp(X - max X)), along `axis`

From opset 13 along one axis (default -1); before, over all axes from `axis` (default 1) on, flattened. The maximum must be subtracted:
without it exp overflows, and log(Softmax(X)) is minus infinity in the tail: no rung explains either. Frameworks subtract the maximum
and the logarithm one after the other, or their sum at once.)";

  static std::vector<AttributeSpec> attributes() {
    return {{"axis", AttributeKind::integer, "in [-rank, rank); default -1, before opset 13 default 1"}};
  }
  static std::vector<std::string_view> formulas() { return {"x - m - log(sum)", "x - (m + log(sum))"}; }

  static Expected<Types> infer(const Call& call) {
    if (const auto axis = row_axis(call); !axis) return make_error("attribute 'axis': {}", axis.error().message);
    return Types{{call.dtype(0), call.shape(0)}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const auto x = frame.input(0);
    const auto y = frame.output(0, frame.call().shape(0));
    for_each_row(frame.call(), x, [&](std::int64_t length, const auto& at, const auto& largest) {
      Sum<T> sum;
      for (std::int64_t k = 0; k < length; ++k) {
        y[at(k)] = T(x[at(k)]) - T(largest);
        sum.add(exp(y[at(k)]));
      }
      const T logarithm = log(sum.result());
      const T both = T(largest) + logarithm;
      for (std::int64_t k = 0; k < length; ++k)
        y[at(k)] = frame.formula() == 0 ? y[at(k)] - logarithm : T(x[at(k)]) - both;
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY - softmax(X) sum dY along the axis. Frameworks take the exponential of a stored Y, whose rounding it "
      "magnifies |Y| times, or the softmax itself.";

  static std::vector<std::string_view> gradient_formulas() { return {"softmax", "exp(Y)"}; }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const auto x = frame.input(0), dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    for_each_row(frame.call(), x, [&](std::int64_t length, const auto& at, const auto& largest) {
      Sum<T> exponentials, cotangents;
      for (std::int64_t k = 0; k < length; ++k) {
        dx[at(k)] = T(x[at(k)]) - T(largest);
        exponentials.add(exp(dx[at(k)]));
        cotangents.add(T(dy[at(k)]));
      }
      const T total = share(exponentials.result(), 0), logarithm = log(total), sum = share(cotangents.result(), 1);
      for (std::int64_t k = 0; k < length; ++k) {
        const T y = frame.formula() == 0 ? exp(dx[at(k)]) / total : exp(dx[at(k)] - logarithm);
        dx[at(k)] = T(dy[at(k)]) - y * sum;
      }
    });
  }

  static std::vector<int> gradient_group_axes(const GradientCall& call, int) { return row_group_axes(call.forward()); }

  static std::vector<int> group_axes(const Call& call, int) { return row_group_axes(call); }

  static Sample sample(SampleContext& c) { return sample_rows(c, kName, c.shape_or_empty(1, 5, 9)); }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    return {refused_sample(kName, {x}, {{"axis", std::int64_t{2}}}, "axis"),
            refused_sample(kName, {x}, {{"axis", std::int64_t{-3}}}, "axis"),
            refused_sample(kName, {x}, {{"axes", std::int64_t{0}}}, "axes"),
            refused_sample(kName, {Tensor::zeros(DType::f32, {})}, {}, "axis"),
            refused_sample(kName, {Tensor::zeros(DType::i32, {2})}, {}, "type")};
  }
};

}  // namespace

const MetaOperator& log_softmax() {
  static const MetaOperator op = describe<LogSoftmax>();
  return op;
}

}  // namespace opdiff::operators
