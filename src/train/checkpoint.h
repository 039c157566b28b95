// The state of a training between two steps, on disk: an archive of tensors and a JSON file that names it and is
// replaced last, so that whatever ends the program, one complete checkpoint is there.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "graph/graph.h"
#include "train/curves.h"

namespace opdiff {

struct Checkpoint {
  std::int64_t step = 0;   // done
  std::int64_t epoch = 0;  // that the next step is of, from 0
  std::int64_t place = 0;  // steps of that epoch done
  TensorMap state;
  Curves curves;
  // What the training was made with; to go on, all of it must be the same.
  std::map<std::string, std::string> made_with;
};

// FOLDER/checkpoint.json and FOLDER/checkpoint-STEP.npz; the archive before it goes last.
Expected<void> write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint);

// nullopt: there is none. Errors name the file and what is wrong with it.
Expected<std::optional<Checkpoint>> read_checkpoint(const std::filesystem::path& folder);

}  // namespace opdiff
