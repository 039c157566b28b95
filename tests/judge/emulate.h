// Hand-made tensors and the arithmetic of honest and of narrow implementations, written without the oracle's help.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "base/rng.h"
#include "judge/judge.h"
#include "numerics/order.h"
#include "ops/evaluate.h"

namespace opdiff {

struct Case {
  Node node;
  std::vector<Tensor> inputs;
  int opset = 17;

  std::vector<const Tensor*> pointers() const {
    std::vector<const Tensor*> p;
    for (const Tensor& t : inputs) p.push_back(&t);
    return p;
  }
  const MetaOperator& op() const { return *find_operator(node.domain, node.op); }
  Verdict judge(const Tensor& got) const {
    const Tensor* one[] = {&got};
    return judge_node(node, opset, pointers(), one)[0];
  }
  Tensor right() const {
    const auto p = pointers();
    return values(op(), Call(node, opset, p))[0];
  }
  EnclosedTensor enclosed(const Profile& profile, int formula = 0) const {
    const auto p = pointers();
    return enclose(op(), Call(node, opset, p), profile, formula)[0];
  }
  Tensor worked(const SumOrder& order, const Profile& profile, int formula = 0) const {
    const auto p = pointers();
    const SumOrder outer = working_order();
    working_order() = order;
    Tensor y = work(op(), Call(node, opset, p), profile, formula)[0];
    working_order() = outer;
    return y;
  }
};

inline Case make_case(std::string op, std::vector<Tensor> inputs, std::map<std::string, Attribute> attributes = {}) {
  Case c{{"node", std::move(op), "", {}, {"y"}, std::move(attributes)}, std::move(inputs)};
  for (std::size_t k = 0; k < c.inputs.size(); ++k) c.node.inputs.push_back("x" + std::to_string(k));
  if (c.inputs[0].dtype() == DType::bf16 && c.node.op == "Conv") c.opset = 22;  // it takes bf16 from there on
  return c;
}

inline Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed, double scale = 1, double mean = 0) {
  Rng rng(seed, "tensor");
  std::vector<double> v(static_cast<std::size_t>(element_count(shape)));
  for (double& x : v) x = mean + scale * rng.normal();
  return Tensor::from_doubles(dtype, std::move(shape), v);
}
inline Tensor constant_tensor(DType dtype, Shape shape, double value) {
  const std::vector<double> v(static_cast<std::size_t>(element_count(shape)), value);
  return Tensor::from_doubles(dtype, std::move(shape), v);
}
inline Tensor from(DType dtype, Shape shape, std::vector<double> v) {
  return Tensor::from_doubles(dtype, std::move(shape), v);
}

// The tensor with element i replaced by f(i, value).
inline Tensor changed(const Tensor& t, const std::function<double(std::int64_t, double)>& f) {
  std::vector<double> v = t.to_doubles();
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = f(static_cast<std::int64_t>(i), v[i]);
  return Tensor::from_doubles(t.dtype(), t.shape(), v);
}

// A [m, k] times B [k, n]: operands passed through `operand`, running sum through `sum`, result through storage.
inline Tensor emulated_gemm(const Tensor& a, const Tensor& b, const std::function<double(double)>& operand,
                            const std::function<double(double)>& sum) {
  const std::int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  std::vector<double> x = a.to_doubles(), y = b.to_doubles(), out;
  for (double& v : x) v = operand(v);
  for (double& v : y) v = operand(v);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double total = 0;
      for (std::int64_t l = 0; l < k; ++l)
        total = sum(total + sum(x[static_cast<std::size_t>(i * k + l)] * y[static_cast<std::size_t>(l * n + j)]));
      out.push_back(total);
    }
  return Tensor::from_doubles(a.dtype(), {m, n}, out);
}

inline std::function<double(double)> rounder(const Format& format, Rounding rounding = Rounding::nearest_even) {
  return [format, rounding](double x) { return round_to(x, format, rounding); };
}
inline double same(double x) { return x; }

inline testing::AssertionResult on(const Verdict& v, Rung rung, std::string_view word = "") {
  if (v.rung == rung && v.explanation.find(word) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << to_string(v.rung) << " '" << v.explanation << "' " << v.profile << " note '"
                                     << v.note << "' z rms " << v.z_rms << " (limit " << v.z_rms_limit << ") max "
                                     << v.z_max << " excess " << v.excess << " unproven " << v.unproven_elements
                                     << "; worst " << v.worst.index << " got " << v.worst.got << " centre "
                                     << v.worst.centre << " radius " << v.worst.radius << " deviation "
                                     << v.worst.deviation << "; expected " << to_string(rung) << " " << word;
}

}  // namespace opdiff
