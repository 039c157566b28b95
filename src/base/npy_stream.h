// The .npy format over any source of bytes: what .npy files and the members of .npz files (base/npy.h) share.
// numpy.lib.format describes it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/tensor.h"

namespace opdiff {

// Gives the next so many bytes, all of them or an error.
using ReadBytes = std::function<Expected<void>(char* destination, std::uint64_t bytes)>;

// An array of `size` bytes with its header. The error names no file.
Expected<Tensor> read_npy_stream(const ReadBytes& read, std::uint64_t size);

// What goes before the tensor's bytes; its length is a multiple of 64.
std::string npy_header(const Tensor& tensor);

}  // namespace opdiff
