#include <gtest/gtest.h>

#include "one_call.h"

namespace opdiff::testing_ops {
namespace {

// numpy.matmul by its documentation, on operands of two and more axes: indices are counted up like an odometer.
std::vector<double> product(const Tensor& a, const Tensor& b, const Shape& batch) {
  const Shape &as = a.shape(), &bs = b.shape();
  const std::int64_t m = as[as.size() - 2], k = as.back(), n = bs.back();
  std::vector<double> y;
  Shape at(batch.size(), 0);
  const auto matrix = [&](const Shape& shape) {
    std::int64_t flat = 0;
    const std::size_t axes = shape.size() - 2, skipped = batch.size() - axes;
    for (std::size_t d = 0; d < axes; ++d) flat = flat * shape[d] + (shape[d] == 1 ? 0 : at[skipped + d]);
    return flat;
  };
  for (std::int64_t left = element_count(batch); left > 0; --left) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += a.at((matrix(as) * m + i) * k + l) * b.at((matrix(bs) * k + l) * n + j);
        y.push_back(sum);
      }
    for (std::size_t d = batch.size(); d-- > 0;) {
      if (++at[d] < batch[d]) break;
      at[d] = 0;
    }
  }
  return y;
}

TEST(MatMul, ByHand) {
  const Tensor a = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), v = tensor({3}, {1, 0, -1});
  EXPECT_TRUE(
      evaluate("MatMul", {a, tensor({3, 2}, {7, 8, 9, 10, 11, 12})})[0].bit_equal(tensor({2, 2}, {58, 64, 139, 154})));
  EXPECT_TRUE(evaluate("MatMul", {a, v})[0].bit_equal(tensor({2}, {-2, -2})));
  EXPECT_TRUE(evaluate("MatMul", {tensor({2}, {1, 10}), a})[0].bit_equal(tensor({3}, {41, 52, 63})));
  EXPECT_TRUE(evaluate("MatMul", {v, v})[0].bit_equal(tensor({}, {2})));
  // A one-dimensional operand with batches.
  EXPECT_TRUE(evaluate("MatMul", {v, tensor({2, 3, 1}, {1, 2, 3, 4, 5, 7})})[0].bit_equal(tensor({2, 1}, {-2, -3})));
  EXPECT_TRUE(evaluate("MatMul", {tensor({2, 1, 3}, {1, 2, 3, 4, 5, 7}), v})[0].bit_equal(tensor({2, 1}, {-2, -3})));
  // Nothing to add.
  EXPECT_TRUE(evaluate("MatMul", {tensor({2, 0}, {}), tensor({0, 2}, {})})[0].bit_equal(tensor({2, 2}, {0, 0, 0, 0})));
  EXPECT_EQ(evaluate("MatMul", {tensor({0, 2}, {}), tensor({2, 2}, {1, 2, 3, 4})})[0].shape(), (Shape{0, 2}));
}

TEST(MatMul, BatchesBroadcast) {
  for (std::uint64_t index = 0; index < 200; ++index) {
    Rng rng(9, "MatMul", index);
    const std::int64_t m = rng.integer(1, 80), n = rng.integer(1, 5), k = rng.integer(1, 6);  // beyond a block of rows
    Shape batch, as, bs;
    for (std::int64_t d = rng.integer(0, 3); d > 0; --d) {
      batch.push_back(rng.integer(1, 3));
      const bool a_repeats = rng.chance(0.3), b_repeats = !a_repeats && rng.chance(0.3);
      as.push_back(a_repeats ? 1 : batch.back());
      bs.push_back(b_repeats ? 1 : batch.back());
    }
    if (rng.chance(0.3) && !bs.empty()) {  // fewer axes: those left out are repeated
      bs.erase(bs.begin());
      as[0] = batch[0];
    }
    as.insert(as.end(), {m, k});
    bs.insert(bs.end(), {k, n});
    const DType dtype = rng.pick(std::vector<DType>{DType::f32, DType::f64, DType::i32, DType::i64});
    const Tensor a = whole_numbers(rng, as, -8, 8, dtype), b = whole_numbers(rng, bs, -8, 8, dtype);
    const Tensor y = evaluate("MatMul", {a, b})[0];
    Shape expected = batch;
    expected.insert(expected.end(), {m, n});
    EXPECT_EQ(y.shape(), expected);
    EXPECT_EQ(y.to_doubles(), product(a, b, batch)) << "case " << index;
    const OneCall one("MatMul", {a, b}, {}, 17, 1);
    const std::int64_t element = rng.integer(0, y.size() - 1);
    const Reduction r = one.op().reduction(one.call(), 0, element);
    double total = 0;
    for (std::size_t l = 0; l < r.a.size(); ++l) total += r.a[l] * r.b[l];
    EXPECT_EQ(total, y.at(element)) << "case " << index;
  }
}

TEST(MatMul, IntegersWrapAround) {
  const Tensor a = tensor({1}, {65536}, DType::u32), b = tensor({1}, {65537}, DType::u32);
  EXPECT_EQ(evaluate("MatMul", {a, b})[0].int_at(0), 65536);
  const std::int64_t big = std::int64_t{1} << 62;
  EXPECT_EQ(evaluate("MatMul", {integers({big, 1}), integers({4, 5})})[0].int_at(0), 5);
}

}  // namespace
}  // namespace opdiff::testing_ops
