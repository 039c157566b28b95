// What a classifier says, and how sure that is: class probabilities by the reference, each with the interval that
// honest arithmetic allows it, and the same of several backends.
#pragma once

#include <string>
#include <vector>

#include "graph/segments.h"
#include "workers/backend.h"

namespace opdiff {

// |p - reference| in noise floors beyond which an element is suspect (docs/numerics.md, section 6).
inline constexpr double kIntervalFloors = 10;

struct Probabilities {
  std::vector<double> value;      // rows * classes
  std::vector<double> low, high;  // of the reference only
};
struct Inference {
  std::int64_t rows = 0, classes = 0;
  Probabilities reference;
  // Largest probability minus the second, and how far the arithmetic can move it (both ends of both intervals).
  std::vector<double> margin, movement;
};

class Classifier {
 public:
  // `graph` is validated and bound, with one float output [rows, classes]; where it does not end in a Softmax, one
  // follows it here. Errors say what output it has instead.
  static Expected<Classifier> make(const Graph& graph, const TypeMap& types);

  Expected<Inference> reference(const TensorMap& inputs, std::uint64_t seed) const;
  // Of the model as a user runs it on a backend.
  Expected<std::vector<double>> probabilities(const Outcome& outcome) const;
  const Graph& model() const { return model_; }

 private:
  Graph model_;  // as given
  Graph graph_;  // ends in probabilities
  std::string scores_, probabilities_;
};

}  // namespace opdiff
