// The data of a recipe: read whole, shuffled from the seed, transformed batch by batch. The order and every bit depend
// on the recipe alone, never on who computes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "train/recipe.h"

namespace opdiff {

struct Dataset {
  Tensor images;                         // uint8 or f32 [samples, ...]
  Tensor labels;                         // int64 [samples], or f32 [samples, ...]
  std::string images_name, labels_name;  // for messages: a file, and the array in it
  std::vector<std::string> classes;      // of a folder: the names of its folders, in order
  std::int64_t size() const { return images.shape()[0]; }
};

// Errors name the file, the array and what is wrong; `hint` is added where a file is missing.
Expected<Dataset> read_dataset(const DataSource& source, const std::optional<std::string>& hint);

// Labels must be whole numbers from 0 to classes - 1, or `ignored`.
Expected<void> check_classes(const Dataset& data, std::int64_t classes, std::optional<std::int64_t> ignored);

// Makes network inputs of shape [rows, SAMPLE...] out of samples. Bit by bit what numpy makes of the same formula in
// float32: division by 255, linear interpolation (half-pixel centres, the border repeats), (x - mean) / deviation.
class Preprocessing {
 public:
  // `raw`: shape of one sample, [height, width], [channels, height, width] or, when nothing is resized or flipped, any.
  // `sample`: shape of one network input. The error says how they do not fit.
  static Expected<Preprocessing> make(const Transform& transform, const Shape& raw, const Shape& sample);

  // Rows of `data` as one batch. `flips`: an image of its own for each row; empty: none.
  Tensor batch(const Tensor& data, std::span<const std::int64_t> rows, const std::vector<bool>& flips = {}) const;

 private:
  struct Tap {
    std::int64_t below, above;
    float weight;
  };
  static std::vector<Tap> taps(std::int64_t from, std::int64_t to);

  Transform transform_;
  Shape sample_;
  std::int64_t channels_ = 1, height_ = 1, width_ = 1;  // of a raw sample
  bool is_image_ = false;
  std::vector<Tap> rows_, columns_;  // empty: no resizing
};

// The order of the samples in an epoch (Fisher and Yates), and which of them are flipped.
std::vector<std::int64_t> shuffled(std::int64_t samples, std::uint64_t seed, std::int64_t epoch);
std::vector<bool> flips_of(std::span<const std::int64_t> rows, double chance, std::uint64_t seed, std::int64_t epoch);

// Labels of some rows, with the type that a step's label has.
Tensor labels_of(const Dataset& data, std::span<const std::int64_t> rows, DType dtype);

}  // namespace opdiff
