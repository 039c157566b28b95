// Pictures as tensors: PNG by libpng, and IDX, the format of MNIST (Yann LeCun, Corinna Cortes and Christopher Burges,
// "The MNIST database of handwritten digits"), gzipped or not.
#pragma once

#include <filesystem>

#include "base/tensor.h"

namespace opdiff {

// uint8 [channels, height, width]; grey pictures have one channel, others three, transparency lies on black. With
// `channels` 1 or 3 it is converted to that many; 0: as it is. Errors name the file.
Expected<Tensor> read_png(const std::filesystem::path& path, int channels = 0);

// uint8 of the shape in its header. PATH, or PATH.gz where that is missing. Nothing is allocated before the header's
// claim agrees with the bytes that are there (gzipped: with what so many bytes can hold at most).
Expected<Tensor> read_idx(const std::filesystem::path& path);

}  // namespace opdiff
