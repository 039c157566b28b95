// Tensors, dtypes and shapes.
#include "base/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace opdiff {
namespace {

using testing::HasSubstr;

DType dtype_at(int k) { return static_cast<DType>(k); }

TEST(DTypes, NamesAndCodesGoBothWays) {
  std::set<std::string_view> names;
  std::set<int> codes;
  for (int k = 0; k < kDTypeCount; ++k) {
    const DType dtype = dtype_at(k);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_EQ(dtype_from_onnx_code(onnx_code(dtype)), dtype);
    names.insert(dtype_name(dtype));
    codes.insert(onnx_code(dtype));
    EXPECT_EQ(is_float(dtype) + is_integer(dtype) + (dtype == DType::boolean), 1) << dtype_name(dtype);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kDTypeCount));
  EXPECT_EQ(codes.size(), static_cast<std::size_t>(kDTypeCount));
  EXPECT_EQ(parse_dtype("bf16"), DType::bf16);
  EXPECT_EQ(parse_dtype("float32"), DType::f32);
  EXPECT_FALSE(parse_dtype("string"));
  EXPECT_FALSE(dtype_from_onnx_code(0));
  EXPECT_FALSE(dtype_from_onnx_code(8));
}

TEST(Tensors, ValuesOfEveryDtype) {
  for (int k = 0; k < kDTypeCount; ++k) {
    const DType dtype = dtype_at(k);
    const Tensor tensor =
        Tensor::from_doubles(dtype, {3}, std::vector<double>{0, 1, dtype == DType::boolean ? 1. : 100.});
    EXPECT_EQ(tensor.byte_size(), 3 * dtype_size(dtype));
    EXPECT_EQ(tensor.at(2), dtype == DType::boolean ? 1 : 100) << dtype_name(dtype);
    EXPECT_EQ(tensor.int_at(1), 1);
    EXPECT_EQ(tensor.to_int64s()[0], 0);
    EXPECT_EQ(tensor.to_doubles()[1], 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes().data()) % 64, 0u);
    const Tensor same = Tensor::from_int64s(dtype, {3}, std::vector<std::int64_t>{0, 1, 100});
    EXPECT_TRUE(tensor.bit_equal(same)) << dtype_name(dtype);
  }
}

TEST(Tensors, ExtremesAreExact) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> values = {kMax, std::numeric_limits<std::int64_t>::min(),
                                            (std::int64_t{1} << 53) + 1};
  EXPECT_EQ(Tensor::from_int64s(DType::i64, {3}, values).to_int64s(), values);
  EXPECT_EQ(Tensor::from_doubles(DType::i8, {2}, std::vector<double>{-128, 127.9}).to_int64s(),
            (std::vector<std::int64_t>{-128, 127}));
  const Tensor floats = Tensor::from_doubles(DType::f32, {4}, std::vector<double>{0.1, -0.0, INFINITY, NAN});
  EXPECT_EQ(floats.at(0), 0.1f);
  EXPECT_TRUE(std::signbit(floats.at(1)));
  EXPECT_TRUE(std::isinf(floats.at(2)));
  EXPECT_TRUE(std::isnan(floats.at(3)));
  EXPECT_EQ(Tensor::from_doubles(DType::f16, {1}, std::vector<double>{65520}).at(0), HUGE_VAL);
}

TEST(Tensors, SharingCloningAndReshaping) {
  const Tensor a = Tensor::from_doubles(DType::f32, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  Tensor clone = a.clone();
  clone.mutable_as<float>()[0] = 9;
  EXPECT_EQ(a.at(0), 1);
  EXPECT_FALSE(a.bit_equal(clone));
  const Tensor flat = a.reshaped({6});
  EXPECT_EQ(flat.bytes().data(), a.bytes().data());
  EXPECT_FALSE(flat.bit_equal(a));
  EXPECT_TRUE(flat.reshaped({2, 3}).bit_equal(a));
}

TEST(Tensors, EmptyAndScalar) {
  const Tensor empty = Tensor::zeros(DType::i64, {0, 5});
  EXPECT_EQ(empty.size(), 0);
  EXPECT_TRUE(empty.to_doubles().empty());
  EXPECT_TRUE(empty.bit_equal(empty.clone()));
  const Tensor scalar = Tensor::scalar_like(DType::bf16, 3);
  EXPECT_EQ(scalar.shape(), Shape{});
  EXPECT_EQ(scalar.at(0), 3);
  EXPECT_EQ(Tensor().size(), 0);
}

TEST(Tensors, Types) {
  EXPECT_EQ(to_string(TensorType{DType::f32, Shape{2, 3}}), "float[2,3]");
  EXPECT_EQ(to_string(TensorType{DType::boolean, std::nullopt}), "bool[?]");
  EXPECT_DEATH(Tensor::from_bytes(DType::f32, {2}, {}), "check failed");
  EXPECT_DEATH(Tensor::zeros(DType::f64, {1}).as<float>(), "check failed");
}

TEST(Shapes, Counting) {
  EXPECT_EQ(*checked_element_count({}), 1);
  EXPECT_EQ(*checked_element_count({2, 3}), 6);
  EXPECT_EQ(*checked_element_count({1 << 30, 0, 1 << 10}), 0);
  EXPECT_EQ(*checked_element_count({std::int64_t{1} << 48}), std::int64_t{1} << 48);
  EXPECT_THAT(checked_element_count({std::int64_t{1} << 48, 2}).error().message, HasSubstr("2^48"));
  EXPECT_THAT(checked_element_count({std::int64_t{1} << 60}).error().message, HasSubstr("[1152921504606846976]"));
  EXPECT_THAT(checked_element_count({3, -1}).error().message, HasSubstr("[3,-1] has a negative dimension"));
  EXPECT_FALSE(checked_element_count({0, -1}));
}

TEST(Shapes, StridesAndCoordinates) {
  EXPECT_EQ(strides_of({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(strides_of({}), Shape{});
  const Shape shape = {2, 3, 4};
  for (std::int64_t i = 0; i < 24; ++i) {
    const Shape at = unravel(i, shape);
    EXPECT_EQ(at[0] * 12 + at[1] * 4 + at[2], i);
  }
}

TEST(Shapes, BroadcastingAgainstTheDefinition) {
  EXPECT_EQ(*broadcast_shapes({2, 1, 4}, {3, 1}), (Shape{2, 3, 4}));
  EXPECT_EQ(*broadcast_shapes({}, {5}), Shape{5});
  EXPECT_EQ(*broadcast_shapes({0}, {1}), Shape{0});
  EXPECT_FALSE(broadcast_shapes({2}, {0}));
  EXPECT_THAT(broadcast_shapes({2, 3}, {2}).error().message, HasSubstr("[2,3] and [2]"));
  // The element at an index of the result is the one at the same index, 0 where the dimension is 1.
  const Shape from = {3, 1, 2}, to = {4, 3, 5, 2};
  const Shape strides = broadcast_strides(from, to);
  for (std::int64_t i = 0; i < element_count(to); ++i) {
    const Shape at = unravel(i, to);
    std::int64_t offset = 0;
    for (std::size_t k = 0; k < to.size(); ++k) offset += at[k] * strides[k];
    EXPECT_EQ(offset, at[1] * 2 + at[3]);
  }
}

TEST(Shapes, Axes) {
  EXPECT_EQ(*normalise_axis(-1, 3), 2);
  EXPECT_EQ(*normalise_axis(2, 3), 2);
  EXPECT_THAT(normalise_axis(3, 3).error().message, HasSubstr("axis 3 is outside [-3, 3)"));
  EXPECT_FALSE(normalise_axis(-4, 3));
  EXPECT_FALSE(normalise_axis(0, 0));
}

}  // namespace
}  // namespace opdiff
