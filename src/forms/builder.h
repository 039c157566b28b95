// Building the sides of a form: tensors that all sides share, then each side's nodes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "forms/form.h"
#include "graph/graph.h"

namespace opdiff {

// One way to write the computation.
struct Side {
  std::string name;  // "Conv", "unfold + einsum"
  Graph graph;
  // Initialisers that were computed (a folded weight) and rounded: their values before that.
  std::map<std::string, std::vector<double>> unrounded;
};

// A form with drawn parameters and tensors.
struct FormCase {
  const Form* form = nullptr;
  Parameters parameters;
  std::string region;
  DType dtype = DType::f32;
  std::uint64_t seed = 0;
  std::vector<Side> sides;  // the first is the definition
  TensorMap inputs;         // of all sides
};

enum class Values {
  any,       // one of several distributions, of ordinary size
  nonzero,   // the same with ones instead of zeros: for what has a kink there
  positive,  // in [0.5, 2]
};

class FormBuilder;

// Adds nodes to one side. Every call returns the name of the tensor that it makes.
class SideBuilder {
 public:
  using Attributes = std::map<std::string, Attribute>;

  // A node with one output.
  std::string node(std::string_view op, std::vector<std::string> inputs, Attributes attributes = {},
                   std::string_view domain = "");
  // The same with several; "" is an output that nobody asks for.
  std::vector<std::string> nodes(std::string_view op, std::vector<std::string> inputs, int outputs,
                                 Attributes attributes = {}, std::string_view domain = "");
  // A constant of this side alone: exact values, or values that are rounded to the dtype (a folded weight).
  std::string constant(std::string_view name, Tensor value);
  std::string folded(std::string_view name, Shape shape, const std::vector<double>& values);
  std::string number(double value);                               // a scalar of the dtype, rounded where it must be
  std::string integers(const std::vector<std::int64_t>& values);  // 1-D int64

  std::string reshape(const std::string& x, const Shape& shape);
  std::string transpose(const std::string& x, const std::vector<std::int64_t>& perm);
  std::string slice(const std::string& x, std::int64_t axis, std::int64_t start, std::int64_t end,
                    std::int64_t step = 1);
  // Begins, then ends, as ONNX has them. `value`: a scalar; "" is 0.
  std::string pad(const std::string& x, const std::vector<std::int64_t>& pads, const std::string& value = "");
  std::string concat(std::vector<std::string> parts, std::int64_t axis);
  // ReduceMean, ReduceSum, ReduceMax: `axes` is an attribute or an input, as the opset has it.
  std::string reduce(std::string_view op, const std::string& x, const std::vector<std::int64_t>& axes,
                     bool keepdims = true);
  // The sum of the parts, from the first on.
  std::string sum(const std::vector<std::string>& parts);

  // The side's result; sides give the same number of outputs in the same order.
  void output(const std::string& value);

 private:
  friend class FormBuilder;
  SideBuilder(FormBuilder& form, std::size_t index) : form_(form), index_(index) {}
  Side& side();

  FormBuilder& form_;
  std::size_t index_;
};

class FormBuilder {
 public:
  FormBuilder(const Form& form, const Parameters& parameters, DType dtype, std::uint64_t seed, bool gradient);

  std::int64_t operator[](std::string_view parameter) const;
  const Parameters& parameters() const { return case_.parameters; }
  DType dtype() const { return case_.dtype; }
  int opset() const { return dtype() == DType::bf16 ? kFormOpsetOfBFloat16 : kFormOpset; }
  Rng& rng() { return rng_; }

  // Tensors that every side reads by name. An input is fed; a weight is an initialiser, but in gradient mode an input,
  // so that its gradient is compared, too.
  std::string input(std::string_view name, const Shape& shape, Values values = Values::any);
  std::string weight(std::string_view name, const Shape& shape, std::int64_t fan_in);
  std::string parameter(std::string_view name, const Shape& shape, Values values = Values::any);
  // The same of given values: of another dtype, or of a draw of the form's own.
  std::string input(std::string_view name, Tensor value);
  std::string parameter(std::string_view name, Tensor value);
  Tensor draw(const Shape& shape, Values values = Values::any);
  // The values behind a name, for constants made of them.
  const Tensor& tensor(const std::string& name) const;

  SideBuilder side(std::string_view name);

  Expected<FormCase> take();

 private:
  friend class SideBuilder;
  std::string share(std::string_view name, Tensor value, bool initialiser);

  FormCase case_;
  Rng rng_;
  bool gradient_;
  int distribution_;
  TensorMap weights_;
};

// A case of these parameters, its tensors drawn from the seed. The error says which condition does not hold.
Expected<FormCase> build_case(const Form& form, const Parameters& parameters, DType dtype, std::uint64_t seed,
                              bool gradient);

// Parameters of a region drawn so that they meet the form's conditions; those of `fixed` are given. The error names the
// condition that no draw met.
Expected<Parameters> draw_parameters(const Form& form, const FormRegion& region, const Parameters& fixed, Rng& rng);
Parameters timed_parameters(const Form& form, const Parameters& fixed);

}  // namespace opdiff
