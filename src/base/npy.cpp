#include "base/npy.h"

#include <zip.h>

#include <memory>
#include <vector>

#include "base/file.h"
#include "base/npy_stream.h"
#include "base/utf8.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".npy";
// A deflated byte gives at most so many (zlib.net/zlib_tech.html): a larger claim is a lie.
constexpr std::uint64_t kMaxDeflateRatio = 1032;

// Discards what was not written when it goes out of scope; zip_close() needs release().
using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;
using Member = std::unique_ptr<zip_file_t, decltype(&zip_fclose)>;

Expected<Archive> open_archive(const std::string& path, int flags) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), flags, &code), zip_discard);
  if (archive) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  return make_error("is not a readable .npz (zip) file: {}", reason);
}

// `memory` counts what all members of the archive claim together.
Expected<Tensor> read_member(zip_t* archive, const zip_stat_t& stat, std::uint64_t archive_bytes,
                             std::uint64_t& memory) {
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_INDEX;
  if ((stat.valid & kNeeded) != kNeeded) return make_error("its entry in the zip directory is incomplete");
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
    return make_error("is compressed by zip method {}; stored and deflated are supported", stat.comp_method);
  const std::uint64_t ratio = stat.comp_method == ZIP_CM_STORE ? 1 : kMaxDeflateRatio;
  if (stat.comp_size > archive_bytes || stat.size / ratio > stat.comp_size)
    return make_error("claims {} bytes from {} in a file of {}, which cannot be", stat.size, stat.comp_size,
                      archive_bytes);
  memory += stat.size;
  OPDIFF_RETURN_IF_ERROR(check_fits_in_memory(memory));

  const Member member(zip_fopen_index(archive, stat.index, 0), zip_fclose);
  if (!member) return make_error("cannot be opened: {}", zip_strerror(archive));
  const auto read = [&member](char* destination, std::uint64_t bytes) -> Expected<void> {
    while (bytes > 0) {
      const zip_int64_t got = zip_fread(member.get(), destination, bytes);
      if (got < 0) return make_error("is damaged: {}", zip_error_strerror(zip_file_get_error(member.get())));
      if (got == 0) return make_error("is truncated");
      destination += got;
      bytes -= static_cast<std::uint64_t>(got);
    }
    return {};
  };
  OPDIFF_TRY(Tensor tensor, read_npy_stream(read, stat.size));
  // The checksum is compared when the end is seen.
  char extra = 0;
  const zip_int64_t rest = zip_fread(member.get(), &extra, 1);
  if (rest < 0) return make_error("is damaged: {}", zip_error_strerror(zip_file_get_error(member.get())));
  if (rest > 0) return make_error("is longer than the zip directory says");
  return tensor;
}

}  // namespace

Expected<Tensor> read_npy(const fs::path& path) {
  OPDIFF_TRY(const std::uint64_t size, regular_file_size(path));
  std::uint64_t offset = 0;
  const auto read = [&](char* destination, std::uint64_t bytes) -> Expected<void> {
    OPDIFF_RETURN_IF_ERROR(read_file_part(path, offset, destination, bytes));
    offset += bytes;
    return {};
  };
  auto tensor = read_npy_stream(read, size);
  if (!tensor) return with_context(path.string(), tensor.error());
  return tensor;
}

Expected<std::map<std::string, Tensor>> read_npz(const fs::path& path) {
  OPDIFF_TRY(const std::uint64_t archive_bytes, regular_file_size(path));
  auto archive = open_archive(path.string(), ZIP_RDONLY);
  if (!archive) return with_context(path.string(), archive.error());
  std::map<std::string, Tensor> tensors;
  std::uint64_t memory = 0;
  const zip_int64_t count = zip_get_num_entries(archive->get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive->get(), static_cast<zip_uint64_t>(i), ZIP_FL_ENC_GUESS, &stat) != 0 || !stat.name)
      return make_error("{}: member {}: {}", path.string(), i, zip_strerror(archive->get()));
    std::string name = stat.name;
    if (!is_valid_utf8(name))
      return make_error("{}: the name of member '{}' is not UTF-8", path.string(), replace_invalid_utf8(name));
    if (!name.ends_with(kSuffix))
      return make_error("{}: member '{}' is no .npy array", path.string(), escape_controls(name));
    name.resize(name.size() - kSuffix.size());
    name = escape_controls(name);  // as graph/onnx_reader.h does with the names that these must match
    auto tensor = read_member(archive->get(), stat, archive_bytes, memory);
    if (!tensor) return make_error("{}: array '{}': {}", path.string(), name, tensor.error().message);
    if (!tensors.emplace(name, *std::move(tensor)).second)
      return make_error("{}: array '{}' is there twice", path.string(), name);
  }
  return tensors;
}

Expected<void> write_npy(const fs::path& path, const Tensor& tensor) {
  std::string bytes = npy_header(tensor);
  bytes.append(reinterpret_cast<const char*>(tensor.bytes().data()), tensor.byte_size());
  return write_file_atomically(path, bytes);
}

Expected<void> write_npz(const fs::path& path, const std::map<std::string, Tensor>& tensors) {
  // libzip writes no file for an archive without members: this is the end record of one.
  if (tensors.empty()) return write_file_atomically(path, std::string("PK\x05\x06") + std::string(18, '\0'));
  return write_file_atomically(path, [&](const std::string& temporary) -> Expected<void> {
    // Headers and fragments must live until zip_close().
    std::vector<std::string> headers;
    headers.reserve(tensors.size());
    auto archive = open_archive(temporary, ZIP_CREATE | ZIP_EXCL);
    if (!archive) return make_error("{}: cannot be created: {}", path.string(), archive.error().message);
    zip_t* zip = archive->get();
    for (const auto& [name, tensor] : tensors) {
      headers.push_back(npy_header(tensor));
      // Never written to: the API takes one struct for reading and writing.
      auto* data = const_cast<std::byte*>(tensor.bytes().data());
      zip_buffer_fragment_t fragments[] = {
          {reinterpret_cast<zip_uint8_t*>(headers.back().data()), headers.back().size()},
          {reinterpret_cast<zip_uint8_t*>(data), tensor.byte_size()}};
      zip_source_t* source = zip_source_buffer_fragment(zip, fragments, tensor.byte_size() > 0 ? 2 : 1, 0);
      const std::string member = name + std::string(kSuffix);
      const zip_int64_t index = source == nullptr ? -1 : zip_file_add(zip, member.c_str(), source, ZIP_FL_ENC_UTF_8);
      if (index < 0) {
        if (source != nullptr) zip_source_free(source);
        return make_error("{}: array '{}': {}", path.string(), name, zip_strerror(zip));
      }
      const auto added = static_cast<zip_uint64_t>(index);
      zip_set_file_compression(zip, added, ZIP_CM_STORE, 0);
      // 1980-01-01, the first day of zip's calendar: the same tensors give the same file.
      zip_file_set_dostime(zip, added, 0, (1 << 5) | 1, 0);
    }
    if (zip_close(zip) != 0) return make_error("{}: cannot be written: {}", path.string(), zip_strerror(zip));
    static_cast<void>(archive->release());
    return {};
  });
}

}  // namespace opdiff
