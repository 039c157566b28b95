// The law of gradients over the whole table, without a step size: for a direction v in the inputs and cotangents w of
// the outputs,
//
//   sum w . (J v) = sum (transpose(J) w) . v
//
// where J v comes from the operator's own formula over dual numbers, and transpose(J) w from its gradient. And of
// second derivatives: the Jacobian of an input's gradient is symmetric.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "judge/attack.h"
#include "ops/evaluate.h"
#include "ops/gradient.h"

namespace opdiff {
namespace {

// Cases that are checked; those without numbers (infinite, NaN) are drawn again.
constexpr int kCases = 1000;
constexpr std::uint64_t kDrawn = 4 * kCases;

std::vector<Quad> quads(const Tensor& tensor) {
  std::vector<Quad> values(static_cast<std::size_t>(tensor.size()));
  for (std::int64_t i = 0; i < tensor.size(); ++i) values[static_cast<std::size_t>(i)] = tensor.at(i);
  return values;
}

// A sum of products beside what rounding may have done to it.
struct Total {
  Quad value = 0;
  double magnitude = 0;
  void add(Quad a, Quad b) {
    value += a * b;
    magnitude += static_cast<double>(math::abs(a * b));
  }
};

class Gradients : public testing::TestWithParam<const MetaOperator*> {
 protected:
  const MetaOperator& gradient() const { return *GetParam(); }
  const MetaOperator& op() const {
    const auto operators = all_operators();
    return **std::find_if(operators.begin(), operators.end(), [&](auto* op) { return op->gradient == &gradient(); });
  }
  DType widest() const { return gradient().types & type_bit(DType::f64) ? DType::f64 : DType::f32; }
};

// Random directions in the inputs that have a gradient; none in elements at a kink, where the gradient's conventions
// differ from its definition.
std::vector<std::vector<Quad>> directions(const MetaOperator& gradient, const Call& call, Rng& rng) {
  const GradientCall seen(call);
  std::vector<std::vector<Quad>> result(static_cast<std::size_t>(seen.input_count()));
  for (int k = 0; k < seen.input_count(); ++k)
    if (call.wants(static_cast<std::size_t>(k)))
      for (std::int64_t i = 0; i < element_count(seen.forward().shape(k)); ++i)
        result[static_cast<std::size_t>(k)].push_back(rng.normal());
  std::vector<std::vector<Tensor>> others;
  if (gradient.conventions)
    for (Convention& other : gradient.conventions(call)) others.push_back(std::move(other.outputs));
  for (std::size_t f = 0; f < gradient.convention_formulas.size(); ++f)
    others.push_back(
        work(gradient, call, inner_f32(working_dtype(gradient, call)), static_cast<int>(gradient.formulas.size() + f)));
  if (others.empty()) return result;
  const std::vector<Tensor> right = values(gradient, call);
  for (const std::vector<Tensor>& other : others)
    for (std::size_t k = 0; k < std::min(result.size(), other.size()); ++k)
      for (std::size_t i = 0; i < result[k].size(); ++i)
        if (const double a = other[k].at(static_cast<std::int64_t>(i)), b = right[k].at(static_cast<std::int64_t>(i));
            a != b && !(std::isfinite(b) && std::fabs(a - b) <= 0x1p-40 * std::fabs(b)))  // more than another rounding
          result[k][i] = 0;
  return result;
}

std::vector<std::vector<Dual>> along(void (*kernel)(Frame<Dual>&), const Call& call,
                                     const std::vector<std::vector<Quad>>& direction) {
  Frame<Dual> frame(call, 0);
  for (std::size_t k = 0; k < direction.size(); ++k) {
    if (direction[k].empty()) continue;
    const std::vector<Quad> x = quads(*call.tensor(static_cast<int>(k)));
    std::vector<Dual> input(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) input[i] = {x[i], direction[k][i]};
    frame.set_input(static_cast<int>(k), std::move(input));
  }
  kernel(frame);
  return std::move(frame.outputs());
}

TEST_P(Gradients, DotProductIdentity) {
  if (!op().kernels.dual && !op().movement) return;  // no formula: Cast, Dropout have tests of their own
  int checked = 0;
  for (std::uint64_t index = 0; index < kDrawn && checked < kCases; ++index) {
    const Sample sample = make_sample(gradient(), widest(), 3, index);
    const std::vector<const Tensor*> inputs = sample.pointers();
    const Call call(sample.node, sample.opset, inputs);
    const auto types = infer_call(gradient(), call);
    ASSERT_TRUE(types.has_value()) << types.error().message;
    const GradientCall seen(call);
    Rng rng(3, "direction", index);
    const auto direction = directions(gradient(), call, rng);

    Total left;
    if (op().kernels.dual) {
      const auto outputs = along(op().kernels.dual, seen.forward(), direction);
      for (int j = 0; j < seen.cotangent_count(); ++j)
        if (seen.has_cotangent(j) && static_cast<std::size_t>(j) < outputs.size())  // a mask depends on nothing
          for (std::size_t i = 0; i < outputs[static_cast<std::size_t>(j)].size(); ++i)
            left.add(seen.cotangent(j)->at(static_cast<std::int64_t>(i)), outputs[static_cast<std::size_t>(j)][i].d);
    } else {
      const Movement movement = op().movement(seen.forward());
      for (std::int64_t i = 0; i < element_count(movement.shape); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t from = movement.source.empty() ? i : movement.source[at];
        const auto k = movement.which.empty() ? std::size_t{0} : static_cast<std::size_t>(movement.which[at]);
        if (from >= 0 && !direction[k].empty())
          left.add(seen.cotangent(0)->at(i), direction[k][static_cast<std::size_t>(from)]);
      }
    }

    Frame<Quad> frame(call, 0);
    gradient().kernels.quad(frame);
    const auto bounds = enclose(gradient(), call, inner_f32(widest()), 0);
    Total right;
    double own = 0;  // what the oracle's own rounding may have done to the gradient
    for (std::size_t k = 0; k < direction.size(); ++k)
      for (std::size_t i = 0; i < direction[k].size(); ++i) {
        if (direction[k][i] == 0) continue;  // beside a kink there may be no number
        right.add(frame.outputs()[k][i], direction[k][i]);
        own += bounds[k].rho[i] * std::fabs(static_cast<double>(direction[k][i]));
      }
    if (!math::is_finite(left.value) || !math::is_finite(right.value) || !std::isfinite(own)) continue;
    if (!std::isfinite(left.magnitude) || !std::isfinite(right.magnitude)) continue;
    ++checked;
    // Both sides round in binary128 about as often: 2^10 for how much longer the other formula may be, whose own terms
    // may cancel where they are of the size of the cotangents. A wrong formula is off by its first digits.
    double cotangents = 0;
    for (int j = 0; j < seen.cotangent_count(); ++j)
      for (std::int64_t i = 0; seen.has_cotangent(j) && i < seen.cotangent(j)->size(); ++i)
        cotangents += std::fabs(seen.cotangent(j)->at(i));
    const double allowed = 0x1p10 * (own + 0x1p-113 * (left.magnitude + right.magnitude + cotangents));
    ASSERT_LE(static_cast<double>(math::abs(left.value - right.value)), allowed)
        << display_name(gradient()) << " case " << index << " (" << sample.note << ", opset " << sample.opset
        << "): J v gives " << static_cast<double>(left.value) << ", transpose(J) w gives "
        << static_cast<double>(right.value);
  }
  EXPECT_EQ(checked, kCases);
}

TEST_P(Gradients, SecondDerivativesAreSymmetric) {
  if (!gradient().kernels.dual) return;
  int checked = 0;
  for (std::uint64_t index = 0; index < kDrawn && checked < kCases; ++index) {
    const Sample sample = make_sample(gradient(), widest(), 4, index);
    const std::vector<const Tensor*> inputs = sample.pointers();
    const Call call(sample.node, sample.opset, inputs);
    ASSERT_TRUE(infer_call(gradient(), call).has_value());
    Rng rng(4, "direction", index);
    const auto first = directions(gradient(), call, rng), second = directions(gradient(), call, rng);
    const auto a = along(gradient().kernels.dual, call, first), b = along(gradient().kernels.dual, call, second);
    Total left, right;
    for (std::size_t k = 0; k < first.size(); ++k)
      for (std::size_t i = 0; i < first[k].size(); ++i) {
        if (second[k][i] != 0) left.add(a[k][i].d, second[k][i]);
        if (first[k][i] != 0) right.add(b[k][i].d, first[k][i]);
      }
    if (!math::is_finite(left.value) || !math::is_finite(right.value)) continue;
    if (!std::isfinite(left.magnitude) || !std::isfinite(right.magnitude)) continue;
    ++checked;
    // Cancellation inside a second derivative has no bound here, but binary128 has 60 digits more than a wrong one
    // needs; intermediate values are of the size of the cotangents.
    double cotangents = 0;
    const GradientCall seen(call);
    for (int j = 0; j < seen.cotangent_count(); ++j)
      for (std::int64_t i = 0; seen.has_cotangent(j) && i < seen.cotangent(j)->size(); ++i)
        cotangents += std::fabs(seen.cotangent(j)->at(i));
    const double allowed = 0x1p-53 * (left.magnitude + right.magnitude) + 0x1p-90 * cotangents;
    ASSERT_LE(static_cast<double>(math::abs(left.value - right.value)), allowed)
        << display_name(gradient()) << " case " << index << " (" << sample.note << ")";
  }
  EXPECT_EQ(checked, kCases);
}

INSTANTIATE_TEST_SUITE_P(Operators, Gradients, testing::ValuesIn(all_gradients().begin(), all_gradients().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace opdiff
