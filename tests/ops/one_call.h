// One call of an operator for the tests: built in a line, its correctly rounded outputs or its refusal; small whole
// numbers, whose sums and products are exact in any order.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/evaluate.h"

namespace opdiff::testing_ops {

using Attributes = std::map<std::string, Attribute>;
using Inputs = std::vector<std::optional<Tensor>>;

inline Tensor tensor(Shape shape, std::vector<double> values, DType dtype = DType::f32) {
  return Tensor::from_doubles(dtype, std::move(shape), values);
}
inline Tensor integers(std::vector<std::int64_t> values) { return SampleContext::int64s(values); }

// Whole numbers in [low, high].
inline Tensor whole_numbers(Rng& rng, const Shape& shape, std::int64_t low = -8, std::int64_t high = 8,
                            DType dtype = DType::f32) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) v = static_cast<double>(rng.integer(low, high));
  return Tensor::from_doubles(dtype, shape, values);
}

struct OneCall {
  Node node;
  int opset;
  Inputs inputs;
  std::vector<const Tensor*> pointers;

  OneCall(const std::string& op, Inputs given, Attributes attributes, int version, int outputs)
      : opset(version), inputs(std::move(given)) {
    node.id = "node";
    node.op = op;
    node.attributes = std::move(attributes);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      node.inputs.push_back(inputs[k] ? "x" + std::to_string(k) : "");
      pointers.push_back(inputs[k] ? &*inputs[k] : nullptr);
    }
    for (int k = 0; k < outputs; ++k) node.outputs.push_back("y" + std::to_string(k));
  }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;

  const MetaOperator& op() const { return *find_operator(node.domain, node.op); }
  Call call() const { return Call(node, opset, std::span<const Tensor* const>(pointers)); }
};

// The correctly rounded outputs; a refusal fails the test.
inline std::vector<Tensor> evaluate(const std::string& op, Inputs inputs, Attributes attributes = {}, int opset = 17,
                                    int outputs = 1) {
  const OneCall one(op, std::move(inputs), std::move(attributes), opset, outputs);
  const auto types = infer_call(one.op(), one.call());
  if (!types) {
    ADD_FAILURE() << types.error().message;
    return std::vector<Tensor>(static_cast<std::size_t>(outputs));
  }
  std::vector<Tensor> result = values(one.op(), one.call());
  EXPECT_EQ(result.size(), types->size());
  for (std::size_t k = 0; k < result.size(); ++k) {
    EXPECT_EQ(result[k].dtype(), (*types)[k].dtype);
    EXPECT_EQ(result[k].shape(), *(*types)[k].shape);
  }
  return result;
}

// The message of a refusal; empty: accepted.
inline std::string refusal(const std::string& op, Inputs inputs, Attributes attributes = {}, int opset = 17,
                           int outputs = 1) {
  const OneCall one(op, std::move(inputs), std::move(attributes), opset, outputs);
  const auto types = infer_call(one.op(), one.call());
  return types ? "" : types.error().message;
}

// Every formula encloses the same values: centres of all of them agree within their own errors.
inline void expect_formulas_agree(const std::string& op, Inputs inputs, Attributes attributes = {}, int opset = 17) {
  const OneCall one(op, std::move(inputs), std::move(attributes), opset, 1);
  const Profile profile = inner_f32(one.inputs[0]->dtype());
  const EnclosedTensor first = enclose(one.op(), one.call(), profile, 0)[0];
  for (std::size_t f = 1; f < one.op().formulas.size(); ++f) {
    const EnclosedTensor other = enclose(one.op(), one.call(), profile, static_cast<int>(f))[0];
    for (std::size_t i = 0; i < first.centre.size(); ++i)
      EXPECT_LE(std::fabs(first.centre[i] - other.centre[i]), first.rho[i] + other.rho[i])
          << one.op().formulas[f] << " element " << i;
  }
}

}  // namespace opdiff::testing_ops
