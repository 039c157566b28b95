#include "workers/wire.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace opdiff {
namespace {

constexpr int kDescriptorsSeen = 8;  // room for more than the one allowed, so that the rest can be closed

}  // namespace

void FileDescriptor::reset(int value) {
  if (value_ >= 0) close(value_);
  value_ = value;
}

Expected<FileDescriptor> make_arena(const ArenaBuilder& builder) {
  FileDescriptor arena(memfd_create("opdiff-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!arena) return make_error("cannot make shared memory: {}", strerror(errno));
  const std::size_t size = builder.size();
  if (size > 0) {
    if (ftruncate(arena.get(), static_cast<off_t>(size)) != 0) {
      return make_error("cannot make {} bytes of shared memory: {}", size, strerror(errno));
    }
    void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, arena.get(), 0);
    if (map == MAP_FAILED) return make_error("cannot map {} bytes of shared memory: {}", size, strerror(errno));
    builder.copy_to({static_cast<std::byte*>(map), size});
    munmap(map, size);
  }
  if (fcntl(arena.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return make_error("cannot seal shared memory: {}", strerror(errno));
  }
  return arena;
}

Expected<Tensor> read_tensor(const FileDescriptor& arena, DType dtype, const Shape& shape, std::int64_t offset) {
  OPDIFF_TRY(const std::int64_t count, checked_element_count(shape));
  const auto bytes = static_cast<std::uint64_t>(count) * dtype_size(dtype);
  if (bytes == 0) return Tensor::zeros(dtype, shape);
  if (offset < 0 || offset % static_cast<std::int64_t>(kArenaAlignment) != 0) {
    return make_error("offset {} is no multiple of {}", offset, kArenaAlignment);
  }
  struct stat status{};
  if (!arena || fstat(arena.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return make_error("no shared memory came with it");
  }
  // A sparse file could claim any size: what is allocated counts (512-byte blocks, whole pages).
  const auto size =
      std::min(static_cast<std::uint64_t>(status.st_size), static_cast<std::uint64_t>(status.st_blocks) * 512);
  if (static_cast<std::uint64_t>(offset) > size || bytes > size - static_cast<std::uint64_t>(offset)) {
    return make_error("{} bytes at offset {} do not lie in shared memory of {} bytes", bytes, offset, size);
  }
  Tensor tensor = Tensor::for_overwrite(dtype, shape);
  auto rest = tensor.mutable_bytes();
  while (!rest.empty()) {
    const ssize_t got = pread(arena.get(), rest.data(), rest.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return make_error("shared memory ends early");
    rest = rest.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return tensor;
}

FrameWriter::FrameWriter(WireFrame frame) : arena_(std::move(frame.arena)) {
  const auto length = static_cast<std::uint32_t>(frame.body.size());
  bytes_.reserve(frame.body.size() + 4);
  for (int byte = 0; byte < 4; ++byte) bytes_ += static_cast<char>(length >> (8 * byte) & 0xFF);
  bytes_ += frame.body;
}

Expected<bool> FrameWriter::step(int socket) {
  while (!done()) {
    iovec part{bytes_.data() + sent_, bytes_.size() - sent_};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (sent_ == 0 && arena_) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      const int descriptor = arena_.get();
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      return make_error("cannot send: {}", strerror(errno));
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  arena_.reset();
  return true;
}

Expected<bool> FrameReader::step(int socket) {
  while (true) {
    const bool in_header = received_ < 4;
    // The body grows as it arrives: a length alone allocates nothing.
    constexpr std::size_t kPiece = 1u << 20;
    std::size_t want = 0;
    char* destination = nullptr;
    if (in_header) {
      destination = header_ + received_;
      want = 4 - received_;
    } else {
      const std::size_t have = received_ - 4;
      if (have == length_) return true;
      want = std::min(length_ - have, kPiece);
      frame_.body.resize(have + want);
      destination = frame_.body.data() + have;
    }
    iovec part{destination, want};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsSeen * sizeof(int))];
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
      if (!in_header) frame_.body.resize(received_ - 4);
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      closed_ = true;
      return make_error("connection lost: {}", strerror(errno));
    }
    int descriptors = 0;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
        FileDescriptor owned(descriptor);
        ++descriptors;
        if (received_ == 0 && !frame_.arena) frame_.arena = std::move(owned);
      }
    }
    if (descriptors > 1 || (descriptors == 1 && received_ != 0) || (message.msg_flags & MSG_CTRUNC)) {
      return make_error("more than one file descriptor in a frame, or one in its middle");
    }
    if (got == 0) {
      closed_ = true;
      return make_error("{}", received_ == 0 ? "it closed the connection" : "it closed the connection inside a frame");
    }
    received_ += static_cast<std::size_t>(got);
    if (!in_header) frame_.body.resize(received_ - 4);
    if (in_header && received_ == 4) {
      for (int byte = 3; byte >= 0; --byte) length_ = length_ << 8 | static_cast<unsigned char>(header_[byte]);
      if (length_ > kMaximumFrame) {
        return make_error("a frame of {} bytes; at most {} are allowed", length_, kMaximumFrame);
      }
    }
  }
}

}  // namespace opdiff
