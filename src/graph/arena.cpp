#include "graph/arena.h"

#include <algorithm>
#include <cstring>

namespace opdiff {

std::size_t ArenaBuilder::place(std::size_t bytes) {
  const std::size_t offset = (size_ + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  size_ = offset + bytes;
  return offset;
}

std::size_t ArenaBuilder::add(const Tensor& tensor) {
  const std::span<const std::byte> bytes = tensor.bytes();
  const auto [entry, is_new] = placed_.try_emplace({bytes.data(), bytes.size()}, 0);
  if (is_new) {
    entry->second = place(bytes.size());
    tensors_.emplace_back(entry->second, tensor);
  }
  return entry->second;
}

std::size_t ArenaBuilder::add(std::string bytes) {
  const std::size_t offset = place(bytes.size());
  texts_.emplace_back(offset, std::move(bytes));
  return offset;
}

void ArenaBuilder::copy_to(std::span<std::byte> destination) const {
  OPDIFF_CHECK(destination.size() == size_);
  std::map<std::size_t, std::span<const std::byte>> parts;
  for (const auto& [offset, tensor] : tensors_)
    if (tensor.byte_size() > 0) parts[offset] = tensor.bytes();
  for (const auto& [offset, text] : texts_)
    if (!text.empty()) parts[offset] = std::as_bytes(std::span(text));
  std::size_t end = 0;
  for (const auto& [offset, bytes] : parts) {
    std::fill(destination.begin() + end, destination.begin() + offset, std::byte{0});
    std::memcpy(destination.data() + offset, bytes.data(), bytes.size());
    end = offset + bytes.size();
  }
  std::fill(destination.begin() + end, destination.end(), std::byte{0});
}

std::vector<std::byte> ArenaBuilder::to_bytes() const {
  std::vector<std::byte> bytes(size_);
  copy_to(bytes);
  return bytes;
}

}  // namespace opdiff
