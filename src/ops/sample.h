// Generated cases of an operator: SampleContext picks distributions, the operator picks shapes and attributes. A sample
// depends on (operator, dtype, seed, index) alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "graph/graph.h"

namespace opdiff {

// One node with its inputs.
struct Sample {
  Node node;
  int opset = 17;
  std::vector<std::optional<Tensor>> inputs;  // nullopt: absent optional input
  std::vector<bool> initialiser;              // which inputs are given to backends as weights
  std::string note;                           // distribution, or why it must be refused

  std::vector<const Tensor*> pointers() const;
};

// How values are drawn. Every operator meets all of them.
enum class Distribution {
  normal,      // standard normal times a scale of 1e-3 to 1e3
  positive,    // |normal|
  shifted,     // normal around a mean of up to 100 deviations
  sparse,      // half zeros, as after Relu
  exponents,   // log-uniform magnitudes over (most of) the format
  subnormal,   // around the smallest normal number
  constant,    // one value everywhere
  ramp,        // evenly spaced
  ties,        // few distinct values, many equal
  integers,    // small integers: sums and products are exact
  boundaries,  // zeros of both signs, ones, largest and smallest numbers
};
inline constexpr int kDistributionCount = 11;
std::string_view to_string(Distribution distribution);

class SampleContext {
 public:
  SampleContext(std::string_view op, DType dtype, std::uint64_t seed, std::uint64_t index);

  Rng& rng() { return rng_; }
  DType dtype() const { return dtype_; }
  int opset() const { return opset_; }
  Distribution distribution() const { return distribution_; }
  // Sizes are small mostly, larger now and then, and sometimes 1: boundary geometry is where kernels err.
  std::int64_t extent(std::int64_t low, std::int64_t high);
  Shape shape(int min_rank, int max_rank, std::int64_t max_extent = 12);
  // The same, and in 2 % of the cases one dimension is 0.
  Shape shape_or_empty(int min_rank, int max_rank, std::int64_t max_extent = 12);

  // Values of the sample's distribution; integers and bools draw small numbers.
  Tensor tensor(const Shape& shape) { return tensor(dtype_, shape); }
  Tensor tensor(DType dtype, const Shape& shape);
  // The same for elementwise operators: in 3 % of the cases a third of the values is NaN or infinite.
  Tensor elements(const Shape& shape);
  // Weights: normal, scaled by 1 / sqrt(fan_in); small integers under `integers`.
  Tensor weights(const Shape& shape, std::int64_t fan_in);
  // Strictly positive numbers of ordinary size (variances, scales).
  Tensor positive(const Shape& shape);
  static Tensor int64s(const std::vector<std::int64_t>& values);  // 1-D
  static Tensor scalar_int64(std::int64_t value);

  // A node "node" of `op` with inputs x0, x1, ... (those given) and outputs y0, ...
  Sample make(std::string_view op, std::vector<std::optional<Tensor>> inputs, int outputs = 1);

 private:
  Rng rng_;
  DType dtype_;
  Distribution distribution_;
  int opset_;
};

// A sample that must be refused; `why` is a word of the expected message.
Sample refused_sample(std::string_view op, std::vector<std::optional<Tensor>> inputs,
                      std::map<std::string, Attribute> attributes, std::string why, int opset = 17);

}  // namespace opdiff
