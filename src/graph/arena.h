// The arena of a wire frame (docs/formats/wire.md): tensors and byte strings laid out one after the other at
// offsets that are multiples of 64. The builder only plans the layout and shares the tensors' bytes;
// copy_to() writes them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace opdiff {

inline constexpr std::size_t kArenaAlignment = 64;

class ArenaBuilder {
 public:
  // The offset of the tensor's bytes. Tensors that share their bytes are placed once.
  std::size_t add(const Tensor& tensor);
  // Bytes that are no tensor, such as a serialised model; the builder keeps the string.
  std::size_t add(std::string bytes);

  // Bytes that the arena needs; at least as far as the last part's end.
  std::size_t size() const { return size_; }
  // `destination` must have size() bytes (CHECKed); the gaps between the parts are zeroed.
  void copy_to(std::span<std::byte> destination) const;
  std::vector<std::byte> to_bytes() const;

 private:
  std::size_t place(std::size_t bytes);

  std::size_t size_ = 0;
  std::vector<std::pair<std::size_t, Tensor>> tensors_;                     // offset, tensor
  std::vector<std::pair<std::size_t, std::string>> texts_;                  // offset, bytes
  std::map<std::pair<const std::byte*, std::size_t>, std::size_t> placed_;  // address and length -> offset
};

}  // namespace opdiff
