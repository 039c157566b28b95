#include "train/image_file.h"

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/file.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 28;
// Deflate writes at most 258 bytes for 2 bits (RFC 1951, section 3.2.5).
constexpr std::uint64_t kMostExpansion = 1032;

std::uint32_t big_endian(const unsigned char* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

struct GzClose {
  void operator()(gzFile_s* file) const { gzclose_r(file); }
};

// All bytes asked for or an error that says how far the file goes. zlib reads plain files, too.
Expected<void> read_exactly(gzFile file, const fs::path& path, void* destination, std::uint64_t bytes,
                            std::string_view what) {
  auto* place = static_cast<unsigned char*>(destination);
  std::uint64_t done = 0;
  while (done < bytes) {
    const auto part = static_cast<unsigned>(std::min<std::uint64_t>(bytes - done, 1u << 30));
    const int got = gzread(file, place + done, part);
    if (got > 0) done += static_cast<std::uint64_t>(got);
    int code = Z_OK;
    const char* const reason = gzerror(file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
      return make_error("{}: damaged or cut off in {}, after {} of {} bytes: {}", path.string(), what, done, bytes,
                        code == Z_BUF_ERROR ? "the gzip stream ends early" : reason);
    if (got == 0)
      return make_error("{}: cut off in {}: {} bytes where its header says {}", path.string(), what, done, bytes);
  }
  return {};
}

}  // namespace

Expected<Tensor> read_idx(const fs::path& given) {
  fs::path path = given;
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::exists(path.string() + ".gz", ignored)) path += ".gz";
  OPDIFF_TRY(const std::uint64_t size, regular_file_size(path));
  const std::unique_ptr<gzFile_s, GzClose> file(gzopen(path.c_str(), "rb"));
  if (!file) return make_error("{}: cannot open", path.string());
  gzbuffer(file.get(), 1 << 17);
  unsigned char magic[4];
  OPDIFF_RETURN_IF_ERROR(read_exactly(file.get(), path, magic, 4, "its header"));
  if (magic[0] != 0 || magic[1] != 0)
    return make_error("{}: no IDX file: it starts with {:02x} {:02x}, not with 00 00", path.string(), magic[0],
                      magic[1]);
  if (magic[2] != 0x08)
    return make_error("{}: an IDX file of type {:#04x}; only bytes (0x08) are read", path.string(), magic[2]);
  const int rank = magic[3];
  if (rank < 1 || rank > 4) return make_error("{}: an IDX file of rank {}; 1 to 4 are read", path.string(), rank);
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) {
    unsigned char bytes[4];
    OPDIFF_RETURN_IF_ERROR(read_exactly(file.get(), path, bytes, 4, "its header"));
    shape.push_back(big_endian(bytes));
  }
  const auto count = checked_element_count(shape);
  if (!count) return with_context(path.string(), count.error());
  const bool plain = gzdirect(file.get()) != 0;
  const auto claimed = static_cast<std::uint64_t>(*count);
  const std::uint64_t header = 4 + 4 * static_cast<std::uint64_t>(rank);
  if (plain ? claimed + header != size : claimed / kMostExpansion > size)
    return make_error("{}: its header says {} = {} bytes, the file has {}{}", path.string(), to_string(shape), claimed,
                      plain ? size - header : size, plain ? " after it" : " compressed ones");
  Tensor tensor = Tensor::zeros(DType::u8, shape);
  OPDIFF_RETURN_IF_ERROR(read_exactly(file.get(), path, tensor.mutable_bytes().data(), claimed, "its values"));
  unsigned char beyond;
  const int more = gzread(file.get(), &beyond, 1);  // reads the checksum, too
  if (more > 0) return make_error("{}: has more values than the {} that its header says", path.string(), claimed);
  if (more < 0) {
    int code = Z_OK;
    return make_error("{}: damaged or cut off at its end: {}", path.string(), gzerror(file.get(), &code));
  }
  return tensor;
}

Expected<Tensor> read_png(const fs::path& path, int channels) {
  OPDIFF_TRY(const std::string bytes, read_file(path, std::uint64_t{1} << 30));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const auto failed = [&] {
    const std::string message = image.message;
    png_image_free(&image);
    return make_error("{}: no readable PNG picture: {}", path.string(), message);
  };
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) return failed();
  const std::uint64_t pixels = std::uint64_t{image.width} * image.height;
  if (pixels > kMostPixels || pixels / kMostExpansion > 8 * std::uint64_t{bytes.size()}) {
    png_image_free(&image);
    return make_error("{}: claims {} x {} pixels, more than its {} bytes can hold or than the {} that are read",
                      path.string(), image.width, image.height, bytes.size(), kMostPixels);
  }
  const bool colour = channels == 0 ? (image.format & PNG_FORMAT_FLAG_COLOR) != 0 : channels == 3;
  image.format = colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const std::int64_t depth = colour ? 3 : 1, height = image.height, width = image.width;
  std::vector<unsigned char> interleaved(PNG_IMAGE_SIZE(image));
  const png_color black{0, 0, 0};
  if (png_image_finish_read(&image, &black, interleaved.data(), 0, nullptr) == 0) return failed();
  Tensor tensor = Tensor::zeros(DType::u8, {depth, height, width});
  const auto planes = tensor.mutable_as<std::uint8_t>();
  for (std::int64_t pixel = 0; pixel < height * width; ++pixel)
    for (std::int64_t c = 0; c < depth; ++c)
      planes[static_cast<std::size_t>(c * height * width + pixel)] =
          interleaved[static_cast<std::size_t>(pixel * depth + c)];
  return tensor;
}

}  // namespace opdiff
