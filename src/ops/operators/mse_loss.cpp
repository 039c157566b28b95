#include "ops/loss.h"

namespace opdiff::operators {
namespace {

struct MSELoss {
  static constexpr std::string_view kName = "MSELoss";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr std::string_view kDocumentation = R"(Y = (X - target)^2, reduced

X and target of one shape. The mean is over all elements; of no elements it is undefined (0 / 0). Source: torch.nn.MSELoss. Frameworks
divide by the count or multiply by its reciprocal; some halve the square: that is another function.)";
  static constexpr Arity kInputs{2, 2};

  static std::vector<AttributeSpec> attributes() { return {reduction_attribute()}; }
  static std::vector<std::string_view> formulas() {
    return {"sum divided by the count", "sum times the reciprocal of the count"};
  }

  static Expected<Types> infer(const Call& call) { return infer_elementwise_loss(call); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const auto x = frame.input(0), target = frame.input(1);
    reduce_losses(frame, static_cast<std::int64_t>(x.size()), [&](std::size_t i) {
      const T d = T(x[i]) - T(target[i]);
      return d * d;
    });
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = 2 (X - target) dY, dtarget = -dX, with dY divided by the count for the mean.";

  static std::vector<std::string_view> gradient_formulas() {
    std::vector<std::string_view> formulas = difference_slope_formulas();
    formulas.emplace_back("difference doubled first");
    return formulas;
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const auto x = frame.input(0), target = frame.input(1);
    difference_slopes(frame, [&](std::size_t i, const T& cotangent) {
      const T difference = T(x[i]) - T(target[i]);
      return frame.formula() == 3 ? T(2) * difference * cotangent : T(2) * cotangent * difference;
    });
  }

  static Sample sample(SampleContext& c) { return sample_elementwise_loss(c, kName); }
  static std::vector<Sample> refused() { return refused_elementwise_loss(kName); }
};

}  // namespace

const MetaOperator& mse_loss() {
  static const MetaOperator op = describe<MSELoss>();
  return op;
}

}  // namespace opdiff::operators
