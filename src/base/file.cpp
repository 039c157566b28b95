#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace opdiff {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  // Errors of delayed writes show up here.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

tl::unexpected<Error> system_error(const std::filesystem::path& path, std::string_view action) {
  return make_error("{}: cannot {}: {}", path.string(), action, std::strerror(errno));
}

struct OpenFile {
  FileDescriptor fd;
  std::uint64_t size;
};

Expected<OpenFile> open_regular(const std::filesystem::path& path) {
  // O_NONBLOCK: a FIFO without a writer must not hang us before we see that it is one.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error(path, "open");
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return system_error(path, "stat");
  if (S_ISDIR(status.st_mode)) return make_error("{}: is a folder, not a file", path.string());
  if (!S_ISREG(status.st_mode)) return make_error("{}: is not a regular file", path.string());
  return OpenFile{std::move(fd), static_cast<std::uint64_t>(status.st_size)};
}

// Reads until `bytes` are there or the file ends; returns how many.
Expected<std::uint64_t> read_at(const OpenFile& file, const std::filesystem::path& path, std::uint64_t offset,
                                char* destination, std::uint64_t bytes) {
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(file.fd.get(), destination + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "read");
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  return done;
}

Expected<void> write_all(int fd, const std::filesystem::path& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(path, "write");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

Expected<std::string> read_file(const std::filesystem::path& path, std::uint64_t size_limit) {
  OPDIFF_TRY(const OpenFile file, open_regular(path));
  if (file.size > size_limit)
    return make_error("{}: has {} bytes, more than the {} that are read", path.string(), file.size, size_limit);
  OPDIFF_RETURN_IF_ERROR(check_fits_in_memory(file.size));
  std::string bytes(file.size, '\0');
  OPDIFF_TRY(const std::uint64_t got, read_at(file, path, 0, bytes.data(), bytes.size()));
  bytes.resize(got);
  return bytes;
}

Expected<void> read_file_part(const std::filesystem::path& path, std::uint64_t offset, char* destination,
                              std::uint64_t bytes) {
  OPDIFF_TRY(const OpenFile file, open_regular(path));
  if (offset > file.size || bytes > file.size - offset)
    return make_error("{}: {} bytes at offset {} lie outside the file of {} bytes", path.string(), bytes, offset,
                      file.size);
  OPDIFF_TRY(const std::uint64_t got, read_at(file, path, offset, destination, bytes));
  if (got != bytes) return make_error("{}: became shorter while it was read", path.string());
  return {};
}

Expected<std::uint64_t> regular_file_size(const std::filesystem::path& path) {
  return open_regular(path).map([](const OpenFile& file) { return file.size; });
}

Expected<void> write_file_atomically(const std::filesystem::path& path,
                                     const std::function<Expected<void>(const std::string&)>& write) {
  static std::atomic<unsigned> counter{0};
  std::error_code error;
  // What is renamed over a link takes the link's place: the file behind it is meant.
  if (std::filesystem::is_symlink(path, error))
    if (const auto behind = std::filesystem::canonical(path, error); !error)
      return write_file_atomically(behind, write);
  error.clear();
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) return make_error("{}: cannot create its folder: {}", path.string(), error.message());
  const std::string temporary = fmt::format("{}.{}-{}.tmp", path.string(), ::getpid(), counter++);
  const auto finish = [&]() -> Expected<void> {
    OPDIFF_RETURN_IF_ERROR(write(temporary));
    const FileDescriptor fd(::open(temporary.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0 || ::fsync(fd.get()) != 0) return system_error(path, "flush");
    if (::rename(temporary.c_str(), path.c_str()) != 0) return system_error(path, "rename the finished file to");
    return {};
  };
  auto result = finish();
  if (!result) ::unlink(temporary.c_str());
  return result;
}

Expected<void> write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored) &&
      !std::filesystem::is_directory(path, ignored)) {  // a device or a pipe stays what it is
    FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (fd.get() < 0) return system_error(path, "open");
    OPDIFF_RETURN_IF_ERROR(write_all(fd.get(), path, bytes));
    return fd.close() ? Expected<void>() : system_error(path, "write");
  }
  return write_file_atomically(path, [&](const std::string& temporary) -> Expected<void> {
    FileDescriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd.get() < 0) return system_error(path, "create");
    OPDIFF_RETURN_IF_ERROR(write_all(fd.get(), path, bytes));
    if (!fd.close()) return system_error(path, "write");
    return {};
  });
}

Expected<void> check_fits_in_memory(std::uint64_t bytes) {
  const auto memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
  if (bytes > memory) return make_error("{} bytes are needed, this machine has {}", bytes, memory);
  return {};
}

}  // namespace opdiff
