// Frames between engine and worker (docs/formats/wire.md), read and written piece by piece on a non-blocking socket,
// and arenas: the sealed memfds that travel with them. Who waits, and for how long, is workers/process.h's business.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/tensor.h"
#include "graph/arena.h"

namespace opdiff {

inline constexpr int kProtocol = 1;
inline constexpr std::size_t kMaximumFrame = 64u << 20;

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  int release() { return std::exchange(value_, -1); }
  void reset(int value = -1);

 private:
  int value_ = -1;
};

struct WireFrame {
  std::string body;      // JSON
  FileDescriptor arena;  // none when the frame carries no tensors
};

// A memfd with the builder's bytes, sealed against writing, growing and shrinking.
Expected<FileDescriptor> make_arena(const ArenaBuilder& builder);

// Elements of a worker's arena, by pread after checking that they lie inside it. The error says what is wrong.
Expected<Tensor> read_tensor(const FileDescriptor& arena, DType dtype, const Shape& shape, std::int64_t offset);

class FrameWriter {
 public:
  explicit FrameWriter(WireFrame frame);
  // Writes what the socket takes now: true when the frame has gone out, an error when the peer is gone.
  Expected<bool> step(int socket);
  bool done() const { return sent_ == bytes_.size(); }

 private:
  std::string bytes_;
  FileDescriptor arena_;
  std::size_t sent_ = 0;
};

class FrameReader {
 public:
  // Reads what is there now: true when the frame is complete. An error when the peer closed its end (closed() is then
  // true) or broke the rules.
  Expected<bool> step(int socket);
  bool closed() const { return closed_; }
  WireFrame take() { return std::move(frame_); }

 private:
  WireFrame frame_;
  char header_[4] = {};
  std::size_t received_ = 0;  // header included
  std::size_t length_ = 0;
  bool closed_ = false;
};

}  // namespace opdiff
