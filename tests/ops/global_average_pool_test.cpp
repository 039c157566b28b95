#include "one_call.h"

namespace opdiff::testing_ops {
namespace {

TEST(GlobalAveragePool, IsTheMeanOfEveryPlane) {
  std::vector<double> x;
  for (int i = 0; i < 24; ++i) x.push_back(i);
  // Planes of six: 0..5, 6..11, 12..17, 18..23.
  const Tensor y = evaluate("GlobalAveragePool", {tensor({2, 2, 3, 2}, x)})[0];
  EXPECT_EQ(y.shape(), (Shape{2, 2, 1, 1}));
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{2.5, 8.5, 14.5, 20.5}));
}

TEST(GlobalAveragePool, KeepsTheRankForOneAndThreeDimensions) {
  EXPECT_EQ(evaluate("GlobalAveragePool", {tensor({1, 1, 4}, {1, 2, 3, 6})})[0].shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(evaluate("GlobalAveragePool", {tensor({1, 2, 1, 1, 1}, {4, 5})})[0].shape(), (Shape{1, 2, 1, 1, 1}));
}

TEST(GlobalAveragePool, FormulasAgree) { expect_formulas_agree("GlobalAveragePool", {tensor({1, 1, 3}, {1, 2, 4})}); }

}  // namespace
}  // namespace opdiff::testing_ops
