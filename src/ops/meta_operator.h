// What the oracle knows of an operator: its entry in the table of all operators. Made by describe<> (ops/op.h) from the
// operator's struct; evaluated by ops/evaluate.h.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/call.h"
#include "ops/frame.h"
#include "ops/sample.h"

namespace opdiff {

enum class AttributeKind { integer, real, text, tensor, integers, reals, texts };

struct AttributeSpec {
  std::string_view name;
  AttributeKind kind;
  std::string_view documentation;  // meaning, default, legal range
  int since = 1, until = 1000;     // opsets in which it exists
};

// A set of dtypes.
using TypeSet = std::uint32_t;
constexpr TypeSet type_bit(DType dtype) { return 1u << static_cast<int>(dtype); }
inline constexpr TypeSet kFloatTypes = 0xF;
inline constexpr TypeSet kSignedTypes = 0x0F0;
inline constexpr TypeSet kIntegerTypes = 0xFF0;
inline constexpr TypeSet kNumericTypes = kFloatTypes | kIntegerTypes;
inline constexpr TypeSet kAllTypes = kNumericTypes | type_bit(DType::boolean);

struct Arity {
  int min, max;  // max -1: any number
};

// Where each output element of a data-moving operator comes from, bit for bit.
struct Movement {
  Shape shape;
  // Flat index into the input `which` names; empty: input 0 in its order. -1: `fill`.
  std::vector<std::int64_t> source;
  std::vector<std::int16_t> which;  // input number per element; empty: input 0 for all
  std::optional<Tensor> fill;       // one element of input 0's dtype; nullopt: zero
};

// The terms of one output element, for operators that sum: (sum of a[k] b[k] + bias) / divisor, in index order over
// axes of `extents`; b empty: a plain sum.
struct Reduction {
  Shape extents;
  std::vector<double> a, b;
  double bias = 0;
  bool has_bias = false;
  double divisor = 1;
  double factor = 1;  // multiplies the sum of products before the bias (Gemm's alpha)
};

// An element of an output as the oracle sees it: centre, radius, deviation, own error and possible overflow. centre +
// low is the value where double alone cannot hold it (f64 under test).
struct EnclosedElement {
  double centre = 0, low = 0, radius = 0, deviation = 0, rho = 0;
  std::uint8_t overflow = kNoOverflow;
};

// A whole output, array by array.
struct EnclosedTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<double> centre;
  std::vector<double> low;  // empty where double holds every value
  std::vector<double> radius, deviation, rho;
  std::vector<std::uint8_t> overflow;

  EnclosedElement operator[](std::size_t i) const {
    return {centre[i], low.empty() ? 0 : low[i], radius[i], deviation[i], rho[i], overflow[i]};
  }
};

// A weaker, named yardstick: Winograd, one-pass variance. Evaluated only for outputs that fail `rounding`.
struct NamedAlgorithm {
  std::string name;
  std::function<std::vector<EnclosedTensor>(const Profile&)> enclose;
  // Element `index` of output 0 as honest implementation number `variant` computes it: the first eight are those that
  // are likely, the rest drawn at random. Empty: only the yardstick speaks.
  std::function<double(const Profile&, std::int64_t index, int variant)> emulate;
};

// A documented choice between equally valid answers: an alternative exact result, accepted element by element.
struct Convention {
  std::string name;
  std::vector<Tensor> outputs;
};

// One instantiation of the formula for each scalar.
struct Kernels {
  void (*f64)(Frame<double>&) = nullptr;
  void (*quad)(Frame<Quad>&) = nullptr;
  void (*enclosure)(Frame<Enclosure<double>>&) = nullptr;
  void (*enclosure_quad)(Frame<Enclosure<Quad>>&) = nullptr;
  void (*working)(Frame<Working>&) = nullptr;
  void (*integer)(Frame<std::int64_t>&) = nullptr;
  void (*unsigned_integer)(Frame<std::uint64_t>&) = nullptr;
  void (*dual)(Frame<Dual>&) = nullptr;
};

using Types = std::vector<TensorType>;

// Gradients are operators too, of this domain and of their operator's name: inputs are those of the operator, then the
// cotangents of its outputs; outputs are the cotangents of its inputs (ops/gradient.h).
inline constexpr std::string_view kGradientDomain = "opdiff.gradient";

// Losses and optimisers that ONNX does not have, or not in the form that frameworks compute.
inline constexpr std::string_view kTrainingDomain = "opdiff.training";

struct MetaOperator {
  std::string_view name;
  std::string_view domain;  // "" is ai.onnx
  std::string_view documentation;
  std::vector<AttributeSpec> attributes;
  Arity inputs{1, 1}, outputs{1, 1};
  TypeSet types = kFloatTypes;             // of input `leading`
  int leading = 0;                         // the input in whose type the operator works (an optimiser's parameter)
  std::vector<std::string_view> formulas;  // admissible ones, by name; the first is the definition
  // Formulas of other, equally valid results (a gradient at ties), by name; numbered after `formulas`.
  std::vector<std::string_view> convention_formulas;
  std::vector<int> product_inputs;  // operands that hardware may narrow (tf32, bf16, f16)
  bool narrows_cotangents = false;  // of a gradient: its cotangents are such operands, too
  bool updates = false;             // an optimiser: turns parameters and gradients into new parameters
  bool elementary = false;          // its result is one elementary function of its input
  double approximation_floor = 0;   // measured absolute floor, multiples of u sup|f| (section 4)
  std::string_view approximation_source;
  double (*approximation_scale)(const Call&) = nullptr;  // sup|f| of this call; nullptr: 1

  // Output types; the shapes of the inputs are known. Errors name attribute and value; the caller adds operator and
  // node.
  Expected<Types> (*infer)(const Call&) = nullptr;
  // The dtype of output k, which must not depend on shapes; nullptr: that of input 0, for output 0.
  DType (*output_dtype)(const Call&, int output) = nullptr;

  // Exactly one of these three says what the operator computes.
  Kernels kernels;
  Movement (*movement)(const Call&) = nullptr;
  std::vector<Tensor> (*exact)(const Call&) = nullptr;

  // Optional.
  // Axes whose coordinates name an error group of output k (elements that share a mean, a maximum, a folded scale).
  std::vector<int> (*group_axes)(const Call&, int output) = nullptr;
  Reduction (*reduction)(const Call&, int output, std::int64_t index) = nullptr;
  std::vector<NamedAlgorithm> (*algorithms)(const Call&) = nullptr;
  std::vector<Convention> (*conventions)(const Call&) = nullptr;
  // Integer outputs beside the formula's (MaxPool's Indices): one right value, and whether another one is as right.
  Tensor (*integer_output)(const Call&, int output) = nullptr;
  bool (*accepts_integer)(const Call&, int output, std::int64_t index, std::int64_t value) = nullptr;
  // Elements whose value the specification leaves open (out-of-range float to integer Cast); empty: none.
  std::vector<bool> (*unspecified)(const Call&, int output) = nullptr;

  // Outputs that are drawn at random (Dropout's mask): with which probability one of their elements is true; nullopt:
  // in this call the output is not random. The judge holds it against the binomial distribution, then takes it as
  // given: as input `given` of the call that the other outputs are judged by.
  std::optional<double> (*random_output)(const Call&, int output) = nullptr;
  int given = -1;
  // The random output that a result of output 0 shows, where the random output itself was not returned.
  Tensor (*shown_by)(const Call&, const Tensor& result) = nullptr;

  Sample (*sample)(SampleContext&) = nullptr;
  std::vector<Sample> (*refused)() = nullptr;

  const MetaOperator* gradient = nullptr;  // nullptr: the operator has none
  std::vector<int> differentiable;         // inputs that have a gradient; empty: every floating one
};

// The dtype that the operator works in; the leading input must be there.
inline DType working_dtype(const MetaOperator& op, const Call& call) { return call.dtype(op.leading); }

// "Conv", "Conv gradient".
std::string display_name(const MetaOperator& op);
bool is_differentiable(const MetaOperator& op, int input);

// All operators, in the order of their files. Generated by the build.
std::span<const MetaOperator* const> all_operators();
// The gradients of those that have one, in the same order.
std::span<const MetaOperator* const> all_gradients();
// nullptr: nobody of that name in the domain ("" and "ai.onnx" are the same).
const MetaOperator* find_operator(std::string_view domain, std::string_view name);

}  // namespace opdiff
