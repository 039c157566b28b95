// TensorProto <-> Tensor, external data included: the part of the ONNX reader and writer that touches bytes.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/tensor.h"

namespace onnx {
class TensorProto;
}

namespace opdiff {

// Protobuf cannot write a message of 2 GiB or more.
inline constexpr std::uint64_t kMaxProtobufBytes = (std::uint64_t{1} << 31) - 1;
// What one model may take, its external data included: it must still be writable with longer names (isolated nodes),
// and all names fit into the 64 MB of a wire frame. Nor can a small file make us allocate without end by naming the
// same external bytes again and again.
inline constexpr std::uint64_t kMaxModelBytes = kMaxProtobufBytes - (std::uint64_t{64} << 20);

class TensorReader {
 public:
  TensorReader(std::filesystem::path model_folder, std::uint64_t model_file_bytes)
      : folder_(std::move(model_folder)), bytes_left_(kMaxModelBytes - model_file_bytes) {
    OPDIFF_CHECK(model_file_bytes <= kMaxModelBytes);
  }
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
  std::uint64_t bytes_left_;  // for tensors that are not in the file as raw bytes
};

// As raw_data.
void write_tensor(const Tensor& tensor, const std::string& name, onnx::TensorProto* proto);

}  // namespace opdiff
