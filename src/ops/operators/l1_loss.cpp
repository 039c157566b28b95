#include "ops/elementwise.h"
#include "ops/loss.h"

namespace opdiff::operators {
namespace {

struct L1Loss {
  static constexpr std::string_view kName = "L1Loss";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr std::string_view kDocumentation = R"(Y = |X - target|, reduced

X and target of one shape. The mean is over all elements; of no elements it is undefined (0 / 0). Source: torch.nn.L1Loss.)";
  static constexpr Arity kInputs{2, 2};

  static std::vector<AttributeSpec> attributes() { return {reduction_attribute()}; }
  static std::vector<std::string_view> formulas() {
    return {"sum divided by the count", "sum times the reciprocal of the count"};
  }

  static Expected<Types> infer(const Call& call) { return infer_elementwise_loss(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const auto x = frame.input(0), target = frame.input(1);
    reduce_losses(frame, static_cast<std::int64_t>(x.size()),
                  [&](std::size_t i) { return x[i] < target[i] ? T(target[i]) - T(x[i]) : T(x[i]) - T(target[i]); });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = sign(X - target) dY, dtarget = -dX, with dY divided by the count for the mean. Where X equals the target "
      "the gradient is 0; any slope of [-1, 1] is a subgradient: 1 and -1 are conventions.";

  static std::vector<std::string_view> gradient_formulas() { return difference_slope_formulas(); }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const auto x = frame.input(0), target = frame.input(1);
    difference_slopes(frame, [&](std::size_t i, const T& cotangent) {
      if (x[i] > target[i]) return cotangent;
      if (x[i] < target[i]) return -cotangent;
      return x[i] == target[i] ? T(0) : cotangent * (T(x[i]) - T(target[i]));  // NaN
    });
  }

  static std::vector<Convention> gradient_conventions(const GradientCall& gradient) {
    return {slopes(gradient, "slope 1 where X is the target", 1),
            slopes(gradient, "slope -1 where X is the target", -1)};
  }

  static Sample sample(SampleContext& c) { return sample_elementwise_loss(c, kName); }
  static std::vector<Sample> refused() { return refused_elementwise_loss(kName); }

 private:
  static Convention slopes(const GradientCall& gradient, std::string name, double at_kink) {
    const Call& call = gradient.forward();
    const std::vector<double> x = call.tensor(0)->to_doubles(), target = call.tensor(1)->to_doubles(),
                              dy = gradient.cotangent(0)->to_doubles();
    const LossReduction reduction = *loss_reduction(call);
    std::vector<double> dx(x.size()), dt(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double slope = x[i] > target[i] ? 1 : x[i] < target[i] ? -1 : at_kink;
      dx[i] = slope * dy[reduction == LossReduction::none ? i : 0];
      if (reduction == LossReduction::mean) dx[i] /= static_cast<double>(x.size());
      dt[i] = -dx[i];
    }
    return {std::move(name),
            {Tensor::from_doubles(call.dtype(0), call.shape(0), dx),
             Tensor::from_doubles(call.dtype(0), call.shape(0), dt)}};
  }
};

}  // namespace

const MetaOperator& l1_loss() {
  static const MetaOperator op = describe<L1Loss>();
  return op;
}

}  // namespace opdiff::operators
