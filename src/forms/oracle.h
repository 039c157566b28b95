// What honest arithmetic may make of a form's sides: the right values from the first side in wider arithmetic, and for
// each side how far roundings drive it from them (docs/numerics.md, section 6).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "forms/builder.h"
#include "graph/training.h"
#include "judge/verdict.h"
#include "plan/reading.h"

namespace opdiff {

// A side ready to run: the graph of the values, or of values and gradients.
struct RunnableSide {
  std::string name;
  Graph graph;
  std::optional<Training> training;
  std::map<std::string, std::vector<double>> unrounded;
  std::string without_gradient;  // why this side is not run in gradient mode; empty: it is
};
struct RunnableCase {
  const Form* form = nullptr;
  Parameters parameters;
  std::string region;
  DType dtype = DType::f32;
  std::uint64_t seed = 0;
  std::vector<RunnableSide> sides;
  TensorMap inputs;  // of all sides, cotangents included
};

// `gradient`: of every input and weight of a side, for drawn cotangents of its outputs. A side without gradients says
// why.
Expected<RunnableCase> runnable(FormCase form_case, bool gradient);

// The inputs that this graph has.
TensorMap inputs_of(const Graph& graph, const TensorMap& all);

struct CaseOracle {
  // By output: the first side evaluated in double, where the dtype under test is narrower and no Cast says what is
  // rounded; else the reference chain.
  TensorMap centre;
  // By side, by output: the root mean square distance from the centre that roundings cause, floored at the median.
  // Includes the rounding of the result and of folded weights.
  std::vector<Floor> floors;
};
Expected<CaseOracle> make_oracle(const RunnableCase& c);

// One output against the centre, in multiples of `floor`.
FloorComparison read_output(const Tensor& got, DType expected, const Tensor& centre, const std::vector<double>& floor);
// All outputs of a side that the centre has, but those of `apart`; the worst by error().
Reading read_side(const Outcome& outcome, const RunnableSide& side, const TensorMap& centre, const Floor& floor,
                  const std::map<std::string, Verdict>& apart = {});
// Outputs that one node makes of what is given to the graph are that node alone: the ladder's verdicts of those that it
// explains. A floor knows roundings; the ladder knows approximations and conventions, too.
std::map<std::string, Verdict> explained_outputs(const Outcome& outcome, const RunnableSide& side,
                                                 const RunnableCase& c);
// Two sides' results against each other: what honest arithmetic of both explains.
Reading read_difference(const TensorMap& a, const Floor& floor_a, const TensorMap& b, const Floor& floor_b);

}  // namespace opdiff
