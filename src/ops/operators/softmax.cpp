#include <algorithm>
#include <cmath>

#include "ops/rows.h"

namespace opdiff::operators {
namespace {

struct Softmax {
  static constexpr std::string_view kName = "Softmax";
  static constexpr std::string_view kDocumentation = R"(Y = exp(X - max X) / sum exp(X - max X), along `axis`

From opset 13 along one axis (default -1); before, over all axes from `axis` (default 1) on, flattened. The maximum must be subtracted:
without it exp overflows, and no rung explains that. Frameworks divide by the sum or multiply by its reciprocal.)";

  // 2^-125 in f32.
  static constexpr double kApproximationFloor = 0x1p-101;
  static constexpr std::string_view kApproximationSource =
      "onednn 3.2.0's exp returns 0 below 2^-125, measured by `opdiff check Softmax --backend onednn --only 198`";

  static std::vector<AttributeSpec> attributes() {
    return {{"axis", AttributeKind::integer, "in [-rank, rank); default -1, before opset 13 default 1"}};
  }
  static std::vector<std::string_view> formulas() { return {"divided by the sum", "times the reciprocal of the sum"}; }

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
        y[at(k)] = exp(T(x[at(k)]) - T(largest));
        sum.add(y[at(k)]);
      }
      const T total = sum.result();
      const T reciprocal = T(1) / total;
      for (std::int64_t k = 0; k < length; ++k)
        y[at(k)] = frame.formula() == 0 ? y[at(k)] / total : y[at(k)] * reciprocal;
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = Y (dY - sum Y dY) along the axis, with Y as a forward pass rounds it. The product is taken of the "
      "difference, "
      "or of each of its terms.";

  static std::vector<std::string_view> gradient_formulas() { return {"Y (dY - sum)", "Y dY - Y sum"}; }

  // What forward's floor leaves of Y, times what Y is multiplied by: |dY - sum Y dY|, and its share in the sum.
  static constexpr double kGradientApproximationFloor = kApproximationFloor;
  static constexpr std::string_view kGradientApproximationSource =
      "onednn 3.2.0's exp returns 0 below 2^-125, measured by `opdiff check Softmax --gradient --backend onednn --only "
      "198`";
  static double gradient_approximation_scale(const GradientCall& call) {
    double largest = 0, sum = 0;
    for (const double dy : call.cotangent(0)->to_doubles()) {
      if (!std::isfinite(dy)) continue;
      largest = std::max(largest, std::fabs(dy));
      sum += std::fabs(dy);
    }
    return 2 * largest + sum;
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const auto x = frame.input(0), dy = frame.cotangent();
    const auto dx = frame.gradient(0);
    for_each_row(frame.call(), x, [&](std::int64_t length, const auto& at, const auto& largest) {
      Sum<T> exponentials;
      for (std::int64_t k = 0; k < length; ++k) {
        dx[at(k)] = exp(T(x[at(k)]) - T(largest));
        exponentials.add(dx[at(k)]);
      }
      const T total = share(exponentials.result(), 0);
      Sum<T> products;
      for (std::int64_t k = 0; k < length; ++k) {
        dx[at(k)] = dx[at(k)] / total;
        products.add(dx[at(k)] * T(dy[at(k)]));
      }
      const T sum = share(products.result(), 1);
      for (std::int64_t k = 0; k < length; ++k) {
        const T y = dx[at(k)], cotangent(dy[at(k)]);
        dx[at(k)] = frame.formula() == 0 ? y * (cotangent - sum) : y * cotangent - y * sum;
      }
    });
  }

  static std::vector<int> gradient_group_axes(const GradientCall& call, int) { return row_group_axes(call.forward()); }

  static std::vector<int> group_axes(const Call& call, int) { return row_group_axes(call); }

  static Sample sample(SampleContext& c) { return sample_rows(c, kName, c.shape(1, 4, 9)); }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    return {refused_sample(kName, {x}, {{"axis", std::int64_t{2}}}, "axis"),
            refused_sample(kName, {x}, {{"axis", std::int64_t{-3}}}, "axis"),
            refused_sample(kName, {Tensor::zeros(DType::i32, {2})}, {}, "type")};
  }
};

}  // namespace

const MetaOperator& softmax() {
  static const MetaOperator op = describe<Softmax>();
  return op;
}

}  // namespace opdiff::operators
