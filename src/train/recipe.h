// A training recipe: what to train, on what, how, and where each part of a step is computed. A TOML file
// (docs/formats/recipe.md); train/data.h reads the data that it names, train/trainer.h follows it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace opdiff {

// Where images and their labels are: an IDX file (FILE or FILE.gz), an array of an archive, or a folder of classes.
struct DataSource {
  std::filesystem::path images;
  std::string images_array;      // of an .npz
  std::filesystem::path labels;  // empty: the images' folder has a folder for each class
  std::string labels_array;
};

// Applied to each image in this order; bytes are divided by 255 first.
struct Transform {
  double flip = 0;                                              // chance of a horizontal flip, in training only
  std::optional<std::pair<std::int64_t, std::int64_t>> resize;  // height, width
  std::vector<double> mean, deviation;                          // one, or one a channel; empty: 0 and 1
};

// A pattern, an operator or a node, and the backend that computes it.
struct Binding {
  std::string what;
  std::string backend;
};
// "Conv=onednn".
Expected<Binding> parse_binding(const std::string& text);

struct Recipe {
  std::filesystem::path file;
  std::filesystem::path model;
  std::string loss = "cross-entropy";
  std::string optimiser = "sgd:lr=0.01,momentum=0.9";
  std::int64_t batch = 64;
  std::int64_t epochs = 1;
  std::uint64_t seed = 0;
  std::string backend = "reference";
  std::vector<Binding> bindings;
  std::filesystem::path out;  // of checkpoints, curves and the trained model; default: the recipe's name + ".run"
  std::int64_t checkpoint_steps = 0;     // beside the one after each epoch; 0: none
  std::optional<std::string> data_hint;  // what to do where a data file is missing
  DataSource train;
  std::optional<DataSource> test;
  Transform transform;
};

// Relative paths are relative to the recipe (data: to its `folder`, the first of those named that is there; `~` and
// $VARIABLE are replaced). Errors name file, key and value; whether the data is there is for train/data.h to see.
// `data_folder`, if not empty, is taken instead of the recipe's.
Expected<Recipe> read_recipe(const std::filesystem::path& file, const std::filesystem::path& data_folder = {});

}  // namespace opdiff
