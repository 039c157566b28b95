// TensorProto <-> Tensor, external data included: the part of the ONNX reader and writer that touches bytes.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/tensor.h"

namespace onnx {
class TensorProto;
}

namespace opdiff {

// What one model's tensors may take together: protobuf cannot write a message of 2 GiB or more, and a small
// file must not make us allocate without end by naming the same external bytes again and again.
inline constexpr std::uint64_t kMaxModelBytes = (std::uint64_t{1} << 31) - 1;

class TensorReader {
 public:
  explicit TensorReader(std::filesystem::path model_folder) : folder_(std::move(model_folder)) {}
  // The error does not name the tensor: the caller does.
  Expected<Tensor> read(const onnx::TensorProto& proto);

 private:
  struct FilePart {
    std::filesystem::path path;
    std::uint64_t offset = 0;
  };
  // Where a tensor of so many bytes is, after all checks.
  Expected<FilePart> locate_external(const onnx::TensorProto& proto, std::uint64_t bytes) const;

  std::filesystem::path folder_;
  std::uint64_t bytes_left_ = kMaxModelBytes;
};

// As raw_data.
void write_tensor(const Tensor& tensor, const std::string& name, onnx::TensorProto* proto);

}  // namespace opdiff
