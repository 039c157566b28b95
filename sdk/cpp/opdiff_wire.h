// Frames and arenas of the wire, and the graph in its JSON form: the part of the SDK that opdiff_worker.cpp
// uses and that a backend author need not see. See docs/formats/wire.md.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "opdiff_worker.h"

namespace opdiff::sdk {

// A frame that breaks the protocol: nothing sensible can follow it, the worker ends.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The memory behind a received frame, mapped read-only.
class Arena {
 public:
  Arena() = default;
  explicit Arena(int fd);  // takes the descriptor
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Arena();
  // The bytes [offset, offset + bytes); throws std::invalid_argument when they are not all inside.
  const std::byte* part(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void swap(Arena& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct Frame {
  nlohmann::json json;
  Arena arena;
};

// Empty when the peer has closed the socket between frames. Throws ProtocolError.
std::optional<Frame> receive_frame(int socket);

// Sends `json`; with `tensors`, also a sealed arena, and their descriptions as json["outputs"].
void send_frame(int socket, nlohmann::json json, const TensorMap* tensors);

// `copy`: own the data; otherwise a view into the arena.
Tensor parse_tensor(const nlohmann::json& json, const Arena& arena, bool copy);
Graph parse_graph(const nlohmann::json& json, const Arena& arena);

}  // namespace opdiff::sdk
