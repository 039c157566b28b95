// Evaluates one call of a meta-operator: checked types, correctly rounded values, enclosures, honest working
// arithmetic.
#pragma once

#include <vector>

#include "ops/op.h"

namespace opdiff {

// Checks arity, attributes (known, of the right kind) and the dtype of input 0, then asks the operator's shape rule.
// With inputs of unknown shape, the shapes of the outputs are unknown too. Errors begin with the operator's name.
Expected<Types> infer_call(const MetaOperator& op, const Call& call);

// The correctly rounded outputs. `infer_call` must have succeeded.
std::vector<Tensor> values(const MetaOperator& op, const Call& call);

// Outputs as the profile and one admissible formula enclose them. Operators with a formula only (op.kernels).
std::vector<EnclosedTensor> enclose(const MetaOperator& op, const Call& call, const Profile& profile, int formula);

// The same in two steps, where the working dtype is not f64: what the formula gives, and that rounded to storage.
std::vector<std::vector<Enclosure<double>>> enclosures(const MetaOperator& op, const Call& call, const Profile& profile,
                                                       int formula);
// The same, but output `streamed` goes to `take` where the formula makes it piece by piece (Frame::stream); -1: none
// does.
std::vector<std::vector<Enclosure<double>>> enclosures(const MetaOperator& op, const Call& call, const Profile& profile,
                                                       int formula, int streamed, Frame<Enclosure<double>>::Take take);
template <class V>
std::vector<EnclosedTensor> finish_outputs(const MetaOperator& op, const Call& call,
                                           const std::vector<std::vector<Enclosure<V>>>& values,
                                           const Profile& profile);

// What an honest implementation computes under the profile, with this thread's working_order().
std::vector<Tensor> work(const MetaOperator& op, const Call& call, const Profile& profile, int formula);

// Rounds an array of enclosures to storage: adds the last rounding, the oracle's own error and overflow.
template <class V>
EnclosedTensor finish(const std::vector<Enclosure<V>>& values, DType dtype, const Shape& shape, const Profile& profile);

// Applies a movement bit for bit; the result has the dtype of input `leading`.
Tensor move_elements(const Movement& movement, const Call& call, int leading = 0);

}  // namespace opdiff
