// Tensors and calls in the order in which hand-computed cases read: operator, opset, attributes, inputs. Over
// one_call.h.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/evaluate.h"
#include "ops/one_call.h"

namespace opdiff {

using testing_ops::Attributes;
using testing_ops::Inputs;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Tensor tensor(DType dtype, const Shape& shape, const std::vector<double>& values) {
  return Tensor::from_doubles(dtype, shape, values);
}
inline Tensor floats(const Shape& shape, const std::vector<double>& values) {
  return tensor(DType::f32, shape, values);
}
inline Tensor integers(DType dtype, const std::vector<std::int64_t>& values) {
  return Tensor::from_int64s(dtype, {std::ssize(values)}, values);
}
inline Tensor int64s(const std::vector<std::int64_t>& values) { return integers(DType::i64, values); }
// 0, 1, 2, ... in f32.
inline Tensor counting(const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return floats(shape, values);
}

// OneCall with what is returned: its outputs, and its types before all values are known.
struct OneNode : testing_ops::OneCall {
  OneNode(const std::string& op, int opset, Attributes attributes, Inputs inputs, int outputs = 1)
      : OneCall(op, std::move(inputs), std::move(attributes), opset, outputs) {}

  Expected<std::vector<Tensor>> run() const {
    const Call c = call();
    if (auto types = infer_call(op(), c); !types) return tl::unexpected(types.error());
    return values(op(), c);
  }
  // With the type of every input, and the values of only those in `known`.
  Expected<Types> infer(const std::vector<std::size_t>& known) const {
    std::vector<std::optional<TensorType>> types;
    std::vector<const Tensor*> tensors(inputs.size(), nullptr);
    for (const auto& input : inputs)
      types.push_back(input ? std::optional(TensorType{input->dtype(), input->shape()}) : std::nullopt);
    for (const std::size_t k : known) tensors[k] = pointers[k];
    return infer_call(op(), Call(node, opset, types, tensors));
  }
};

// The first output; an error fails the test.
inline Tensor run(const std::string& op, int opset, const Attributes& attributes, const Inputs& inputs) {
  const auto outputs = OneNode(op, opset, attributes, inputs).run();
  if (!outputs) {
    ADD_FAILURE() << outputs.error().message;
    return {};
  }
  return outputs->front();
}

inline std::string refusal(const std::string& op, int opset, const Attributes& attributes, const Inputs& inputs) {
  const auto outputs = OneNode(op, opset, attributes, inputs).run();
  return outputs ? "accepted" : outputs.error().message;
}

// Same dtype, shape and values; NaN equals NaN, zeros of both signs differ.
inline testing::AssertionResult same(const Tensor& got, const Tensor& right) {
  if (got.dtype() != right.dtype() || got.shape() != right.shape())
    return testing::AssertionFailure() << to_string(TensorType{got.dtype(), got.shape()}) << " instead of "
                                       << to_string(TensorType{right.dtype(), right.shape()});
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double a = got.at(i), b = right.at(i);
    const bool equal = is_float(got.dtype())
                           ? (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b))
                           : got.int_at(i) == right.int_at(i);
    if (!equal) return testing::AssertionFailure() << "element " << i << ": " << a << " instead of " << b;
  }
  return testing::AssertionSuccess();
}

}  // namespace opdiff
