// Tensors as numpy's .npy and .npz files, in and out. bfloat16, which numpy lacks, is the two-byte void
// '<V2', as ml_dtypes writes it. Strings, objects and complex numbers are refused by name; big-endian and
// Fortran-ordered arrays are converted.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/tensor.h"

namespace opdiff {

// Format versions 1.0 to 3.0. Errors name the file, and the array of an .npz; nothing is allocated before the
// claimed shape agrees with the bytes that are there.
Expected<Tensor> read_npy(const std::filesystem::path& path);
// Stored and deflated members, zip64 included.
Expected<std::map<std::string, Tensor>> read_npz(const std::filesystem::path& path);

// Atomically (base/file.h). The same tensors give the same bytes.
Expected<void> write_npy(const std::filesystem::path& path, const Tensor& tensor);
Expected<void> write_npz(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors);

}  // namespace opdiff
