// The reference chain at hand: any tensor of it by name, for segments that are run again and again. The streamed check
// (plan/isolated.h) does not need it.
#pragma once

#include <set>
#include <string>

#include "plan/segment.h"
#include "reference/evaluate.h"

namespace opdiff {

class ReferenceChain {
 public:
  // `graph` and `inputs` must outlive it. Tensors are kept up to `budget` bytes, the latest asked for first; others are
  // worked out again when needed.
  ReferenceChain(const Graph& graph, const TensorMap& inputs, ForeignEvaluator foreign,
                 std::size_t budget = std::size_t{1} << 30);

  // Tensors by name: graph inputs and everything that nodes make. The error names what failed.
  Expected<TensorMap> tensors(const std::set<std::string>& names);
  // Types of all tensors seen so far: complete after the first call of tensors().
  const TypeMap& types() const { return types_; }
  const ForeignEvaluator& foreign() const { return foreign_; }

 private:
  const Graph& graph_;
  const TensorMap& inputs_;
  const ForeignEvaluator foreign_;
  const std::size_t budget_;
  std::size_t kept_bytes_ = 0;
  TensorMap kept_;
  TypeMap types_;
};

}  // namespace opdiff
