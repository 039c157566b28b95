// Calls of the operators that ONNX does not have (domain opdiff.training), and verdicts on what a backend might return.
#pragma once

#include "judge/judge.h"
#include "ops/one_node.h"

namespace opdiff {

struct TrainingNode : OneNode {
  TrainingNode(const std::string& op, Attributes attributes, Inputs inputs, int outputs = 1)
      : OneNode(op, 17, std::move(attributes), std::move(inputs), outputs) {
    node.domain = kTrainingDomain;
  }
};

// All outputs; an error fails the test.
inline std::vector<Tensor> outputs_of(const OneNode& node) {
  auto outputs = node.run();
  if (outputs) return *std::move(outputs);
  ADD_FAILURE() << outputs.error().message;
  return std::vector<Tensor>(node.node.outputs.size());
}

inline Verdict judged(const OneNode& node, std::size_t output, const Tensor& got) {
  std::vector<const Tensor*> outputs(node.node.outputs.size(), nullptr);
  outputs[output] = &got;
  return judge_node(node.node, node.opset, node.pointers, outputs)[output];
}

// Values of double precision as the tensor's type rounds them: equal, or neighbours (the plain loop in double has an
// error of its own, far below the type's).
inline testing::AssertionResult rounds_to(const Tensor& got, const std::vector<double>& right) {
  if (static_cast<std::size_t>(got.size()) != right.size())
    return testing::AssertionFailure() << got.size() << " elements instead of " << right.size();
  const Format& format = format_of(got.dtype());
  for (std::size_t i = 0; i < right.size(); ++i) {
    const double y = got.at(static_cast<std::int64_t>(i));
    if (std::isnan(y) && std::isnan(right[i])) continue;
    if (!(std::fabs(y - right[i]) <= ulp(right[i], format)))
      return testing::AssertionFailure() << "element " << i << ": " << y << " instead of " << right[i];
  }
  return testing::AssertionSuccess();
}

inline Tensor normal(Rng& rng, const Shape& shape, DType dtype = DType::f32, double scale = 1) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) v = scale * rng.normal();
  return Tensor::from_doubles(dtype, shape, values);
}

}  // namespace opdiff
