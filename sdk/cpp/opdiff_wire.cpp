#include "opdiff_wire.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>

namespace opdiff::sdk {
namespace {

using nlohmann::json;

constexpr std::uint32_t kLargestFrame = 64u << 20;
constexpr std::size_t kAlignment = 64;

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void read_all(int socket, char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(socket, data, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("reading a request");
    if (got == 0) throw ProtocolError("the engine closed the socket in the middle of a frame");
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

// The first bytes of a frame, with the descriptor that came along (-1 when none did).
std::size_t read_start(int socket, char* data, std::size_t bytes, int* descriptor) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
  iovec part{data, bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail("reading a request");
  int count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here; ++i, ++count) {
      std::memcpy(descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
    }
  }
  if (count > 1 || (message.msg_flags & MSG_CTRUNC))
    throw ProtocolError("a frame came with more than one file descriptor");
  return static_cast<std::size_t>(got);
}

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void write_all(int fd, const std::byte* data, std::size_t bytes, std::size_t offset) {
  while (bytes > 0) {
    const ssize_t put = pwrite(fd, data, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && (errno == ENOSPC || errno == ENOMEM)) throw std::bad_alloc();
    if (put < 0) fail("writing the outputs");
    data += put;
    offset += static_cast<std::size_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
}

int make_arena(const TensorMap& tensors, json* described) {
  const int fd = memfd_create("opdiff-outputs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail("making the arena of the outputs");
  try {
    std::size_t offset = 0;
    *described = json::array();
    for (const auto& [name, tensor] : tensors) {
      described->push_back({{"name", name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"offset", offset}});
      write_all(fd, tensor.data, tensor.bytes(), offset);
      offset += aligned(tensor.bytes());
    }
    if (ftruncate(fd, static_cast<off_t>(std::max(offset, kAlignment))) != 0) fail("sizing the arena of the outputs");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
      fail("sealing the arena of the outputs");
  } catch (...) {
    close(fd);
    throw;
  }
  return fd;
}

double parse_real(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument("'" + text + "' is not a number; expected nan, inf or -inf");
}

Attribute parse_attribute(const json& value, const Arena& arena) {
  using Kind = Attribute::Kind;
  Attribute attribute;
  if (value.contains("int")) {
    attribute.kind = Kind::integer;
    attribute.integer = value["int"].get<std::int64_t>();
  } else if (value.contains("float")) {
    attribute.kind = Kind::real;
    attribute.real = parse_real(value["float"]);
  } else if (value.contains("string")) {
    attribute.kind = Kind::string;
    attribute.string = value["string"].get<std::string>();
  } else if (value.contains("ints")) {
    attribute.kind = Kind::integers;
    attribute.integers = value["ints"].get<std::vector<std::int64_t>>();
  } else if (value.contains("floats")) {
    attribute.kind = Kind::reals;
    for (const auto& item : value["floats"]) attribute.reals.push_back(parse_real(item));
  } else if (value.contains("strings")) {
    attribute.kind = Kind::strings;
    attribute.strings = value["strings"].get<std::vector<std::string>>();
  } else if (value.contains("tensor")) {
    attribute.kind = Kind::tensor;
    attribute.tensor = parse_tensor(value["tensor"], arena, true);
  } else {
    throw Unsupported("its type is none of int, float, string, ints, floats, strings, tensor");
  }
  return attribute;
}

Node parse_node(const json& value, const Arena& arena) {
  Node node;
  node.id = value.at("id").get<std::string>();
  node.op = value.at("op").get<std::string>();
  node.domain = value.value("domain", "");
  node.inputs = value.at("inputs").get<std::vector<std::string>>();
  node.outputs = value.at("outputs").get<std::vector<std::string>>();
  if (value.contains("attributes")) {
    for (const auto& [name, attribute] : value["attributes"].items()) {
      const auto where = "node '" + node.id + "' (" + node.op + "): attribute '" + name + "': ";
      try {
        node.attributes[name] = parse_attribute(attribute, arena);
      } catch (const Unsupported& problem) {
        throw Unsupported(where + problem.what());
      } catch (const std::bad_alloc&) {
        throw;
      } catch (const std::exception& problem) {
        throw std::invalid_argument(where + problem.what());
      }
    }
  }
  return node;
}

std::vector<ValueInfo> parse_values(const json& values) {
  std::vector<ValueInfo> result;
  for (const auto& value : values) {
    ValueInfo info;
    info.name = value.at("name").get<std::string>();
    if (value.contains("dtype") && value["dtype"].is_string()) info.dtype = value["dtype"].get<std::string>();
    if (value.contains("shape") && value["shape"].is_array()) {
      const auto& shape = value["shape"];  // a symbol or null stands for a dimension that only a run knows
      info.shape_known =
          std::all_of(shape.begin(), shape.end(), [](const json& dimension) { return dimension.is_number_integer(); });
      if (info.shape_known) info.shape = shape.get<Shape>();
    }
    result.push_back(std::move(info));
  }
  return result;
}

}  // namespace

Arena::Arena(int fd) {
  struct stat status{};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    throw ProtocolError("the file descriptor of a frame is not a memory file");
  }
  bytes_ = static_cast<std::size_t>(status.st_size);
  if (bytes_ > 0) {
    void* mapped = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
      close(fd);
      throw std::bad_alloc();
    }
    data_ = static_cast<const std::byte*>(mapped);
  }
  close(fd);
}

Arena::~Arena() {
  if (data_) munmap(const_cast<std::byte*>(data_), bytes_);
}

const std::byte* Arena::part(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset % kAlignment != 0)
    throw std::invalid_argument("offset " + std::to_string(offset) + " is no multiple of 64");
  if (offset > bytes_ || bytes > bytes_ - offset) {
    throw std::invalid_argument("bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
                                std::to_string(bytes) + " lie outside the arena of " + std::to_string(bytes_) +
                                " bytes");
  }
  return data_ + offset;
}

std::optional<Frame> receive_frame(int socket) {
  unsigned char header[4];
  int descriptor = -1;
  const std::size_t got = read_start(socket, reinterpret_cast<char*>(header), sizeof header, &descriptor);
  if (got == 0) return std::nullopt;
  Frame frame;
  if (descriptor >= 0) frame.arena = Arena(descriptor);
  read_all(socket, reinterpret_cast<char*>(header) + got, sizeof header - got);
  const std::uint32_t length = header[0] | header[1] << 8 | header[2] << 16 | std::uint32_t{header[3]} << 24;
  if (length > kLargestFrame)
    throw ProtocolError("a frame of " + std::to_string(length) + " bytes is larger than 64 MB");
  std::string text(length, '\0');
  read_all(socket, text.data(), length);
  frame.json = json::parse(text, nullptr, false);
  if (!frame.json.is_object()) throw ProtocolError("a frame is not a JSON object");
  return frame;
}

void send_frame(int socket, json reply, const TensorMap* tensors) {
  int descriptor = -1;
  if (tensors) {
    json described;
    descriptor = make_arena(*tensors, &described);
    reply["outputs"] = std::move(described);
  }
  const std::string text = reply.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  bytes += text;

  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    iovec part{bytes.data() + sent, bytes.size() - sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (sent == 0 && descriptor >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    const ssize_t put = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      if (descriptor >= 0) close(descriptor);
      throw ProtocolError("the engine no longer reads replies");
    }
    sent += static_cast<std::size_t>(put);
  }
  if (descriptor >= 0) close(descriptor);
}

Tensor parse_tensor(const json& value, const Arena& arena, bool copy) {
  const auto name = value.value("name", std::string());
  try {
    Tensor tensor;
    tensor.dtype = value.at("dtype").get<std::string>();
    tensor.shape = value.at("shape").get<Shape>();
    const std::size_t bytes = tensor.bytes();
    const std::byte* data = arena.part(value.at("offset").get<std::uint64_t>(), bytes);
    if (!copy) {
      tensor.data = data;
      return tensor;
    }
    Tensor owned = Tensor::allocate(tensor.dtype, tensor.shape);
    if (bytes > 0) std::memcpy(owned.buffer.data(), data, bytes);
    return owned;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& problem) {
    throw std::invalid_argument("tensor '" + name + "': " + problem.what());
  }
}

Graph parse_graph(const json& value, const Arena& arena) {
  Graph graph;
  graph.name = value.value("name", "");
  graph.opset = value.at("opset").get<std::int64_t>();
  if (value.contains("opsets")) graph.opsets = value["opsets"].get<std::map<std::string, std::int64_t>>();
  graph.inputs = parse_values(value.at("inputs"));
  graph.outputs = parse_values(value.at("outputs"));
  for (const auto& tensor : value.at("initialisers")) {
    graph.initialisers[tensor.at("name").get<std::string>()] = parse_tensor(tensor, arena, true);
  }
  for (const auto& node : value.at("nodes")) graph.nodes.push_back(parse_node(node, arena));
  return graph;
}

}  // namespace opdiff::sdk
