// How an operator is written: one struct in one file of src/ops/operators/, which describe<> turns into its table
// entry. docs/new-operator.md has the members.
#pragma once

#include "ops/gradient.h"
#include "ops/meta_operator.h"

namespace opdiff {

// Builds the table entry of an operator's struct. Members that are there are used; the rest stays empty.
template <class Op>
MetaOperator describe() {
  MetaOperator op;
  op.name = Op::kName;
  if constexpr (requires { Op::kDomain; }) op.domain = Op::kDomain;
  op.documentation = Op::kDocumentation;
  if constexpr (requires { Op::attributes(); }) op.attributes = Op::attributes();
  if constexpr (requires { Op::kInputs; }) op.inputs = Op::kInputs;
  if constexpr (requires { Op::kOutputs; }) op.outputs = Op::kOutputs;
  if constexpr (requires { Op::kTypes; }) op.types = Op::kTypes;
  if constexpr (requires { Op::kLeading; }) op.leading = Op::kLeading;
  if constexpr (requires { Op::formulas(); })
    op.formulas = Op::formulas();
  else
    op.formulas = {"definition"};
  if constexpr (requires { Op::convention_formulas(); }) op.convention_formulas = Op::convention_formulas();
  if constexpr (requires { Op::product_inputs(); }) op.product_inputs = Op::product_inputs();
  if constexpr (requires { Op::kUpdates; }) op.updates = Op::kUpdates;
  if constexpr (requires { Op::kElementary; }) op.elementary = Op::kElementary;
  if constexpr (requires { Op::kApproximationFloor; }) {
    op.approximation_floor = Op::kApproximationFloor;
    op.approximation_source = Op::kApproximationSource;
  }
  if constexpr (requires(const Call& c) { Op::approximation_scale(c); })
    op.approximation_scale = &Op::approximation_scale;
  op.infer = &Op::infer;
  if constexpr (requires(const Call& c) { Op::output_dtype(c, 0); }) op.output_dtype = &Op::output_dtype;
  if constexpr (requires(Frame<double>& f) { Op::forward(f); }) {
    op.kernels.f64 = &Op::template forward<double>;
    op.kernels.quad = &Op::template forward<Quad>;
    op.kernels.enclosure = &Op::template forward<Enclosure<double>>;
    op.kernels.enclosure_quad = &Op::template forward<Enclosure<Quad>>;
    op.kernels.working = &Op::template forward<Working>;
    op.kernels.dual = &Op::template forward<Dual>;
    if constexpr (requires { Op::kIntegers; }) {
      op.kernels.integer = &Op::template forward<std::int64_t>;
      op.kernels.unsigned_integer = &Op::template forward<std::uint64_t>;
    }
  }
  if constexpr (requires(const Call& c) { Op::movement(c); }) op.movement = &Op::movement;
  if constexpr (requires(const Call& c) { Op::exact(c); }) op.exact = &Op::exact;
  if constexpr (requires(const Call& c) { Op::group_axes(c, 0); }) op.group_axes = &Op::group_axes;
  if constexpr (requires(const Call& c) { Op::reduction(c, 0, 0); }) op.reduction = &Op::reduction;
  if constexpr (requires(const Call& c) { Op::algorithms(c); }) op.algorithms = &Op::algorithms;
  if constexpr (requires(const Call& c) { Op::conventions(c); }) op.conventions = &Op::conventions;
  if constexpr (requires(const Call& c) { Op::integer_output(c, 0); }) op.integer_output = &Op::integer_output;
  if constexpr (requires(const Call& c) { Op::accepts_integer(c, 0, 0, 0); }) op.accepts_integer = &Op::accepts_integer;
  if constexpr (requires(const Call& c) { Op::unspecified(c, 0); }) op.unspecified = &Op::unspecified;
  if constexpr (requires(const Call& c) { Op::random_output(c, 0); }) {
    op.random_output = &Op::random_output;
    op.given = Op::kGiven;
    op.shown_by = &Op::shown_by;
  }
  op.sample = &Op::sample;
  if constexpr (requires { Op::refused(); }) op.refused = &Op::refused;
  if constexpr (has_gradient<Op>) {
    static const MetaOperator gradient = describe_gradient<Op>();
    op.gradient = &gradient;
    op.differentiable = gradient.differentiable;
  }
  return op;
}

}  // namespace opdiff
