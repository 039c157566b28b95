#include "base/npy_stream.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "base/utf8.h"

namespace opdiff {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// What version 1.0 can express; numpy itself refuses headers of more than 10,000 bytes by default.
constexpr std::uint32_t kMaxHeaderBytes = 65535;

struct Header {
  DType dtype = DType::f32;
  bool swap_bytes = false;
  bool fortran_order = false;
  Shape shape;
};

Expected<void> parse_descr(std::string_view descr, Header& header) {
  struct Row {
    std::string_view code;
    DType dtype;
  };
  static constexpr Row kRows[] = {{"f8", DType::f64},    {"f4", DType::f32}, {"f2", DType::f16}, {"V2", DType::bf16},
                                  {"i1", DType::i8},     {"i2", DType::i16}, {"i4", DType::i32}, {"i8", DType::i64},
                                  {"u1", DType::u8},     {"u2", DType::u16}, {"u4", DType::u32}, {"u8", DType::u64},
                                  {"b1", DType::boolean}};
  std::string_view code = descr;
  const bool has_order = !code.empty() && std::string_view("<>=|").find(code[0]) != std::string_view::npos;
  header.swap_bytes = !code.empty() && code[0] == '>';
  if (has_order) code.remove_prefix(1);
  if (code == "bfloat16") code = "V2";
  for (const Row& row : kRows) {
    if (code != row.code) continue;
    header.dtype = row.dtype;
    return {};
  }
  const char kind = code.empty() ? '?' : code[0];
  return make_error("dtype '{}'{} is not supported", replace_invalid_utf8(descr),
                    kind == 'U' || kind == 'S' || kind == 'a' ? " (strings)"
                    : kind == 'O'                             ? " (Python objects)"
                    : kind == 'c'                             ? " (complex numbers)"
                    : kind == 'M' || kind == 'm'              ? " (dates)"
                                                              : "");
}

// The Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Expected<Header> parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    OPDIFF_RETURN_IF_ERROR(expect('{'));
    while (!take('}')) {
      OPDIFF_TRY(const std::string key, string());
      OPDIFF_RETURN_IF_ERROR(expect(':'));
      if (key == "descr" && !std::exchange(has_descr, true)) {
        if (peek() == '[') return make_error("structured arrays are not supported");
        OPDIFF_TRY(const std::string descr, string());
        OPDIFF_RETURN_IF_ERROR(parse_descr(descr, header));
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        header.fortran_order = take_word("True");
        if (!header.fortran_order && !take_word("False")) return damaged("'fortran_order' is neither True nor False");
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        OPDIFF_TRY(header.shape, shape());
      } else {
        return damaged("an unexpected or repeated key");
      }
      if (!take(',') && peek() != '}') return damaged("no comma between members");
    }
    if (peek() != '\0') return damaged("text after its end");
    if (!has_descr || !has_order || !has_shape) return damaged("a key is missing");
    return header;
  }

 private:
  static tl::unexpected<Error> damaged(std::string_view what) { return make_error("the header is damaged: {}", what); }

  // The next character that is no blank, '\0' at the end.
  char peek() {
    while (!text_.empty() && std::string_view(" \t\n\r").find(text_[0]) != std::string_view::npos)
      text_.remove_prefix(1);
    return text_.empty() ? '\0' : text_[0];
  }
  bool take(char c) {
    if (text_.empty() || peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    peek();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  Expected<void> expect(char c) {
    if (!take(c)) return damaged(fmt::format("'{}' expected", c));
    return {};
  }
  Expected<std::string> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return damaged("a quoted string expected");
    const std::size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) return damaged("a string without end");
    std::string result(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return result;
  }
  Expected<Shape> shape() {
    Shape result;
    OPDIFF_RETURN_IF_ERROR(expect('('));
    while (!take(')')) {
      peek();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc()) return damaged("the shape has something that is no 64-bit number");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      take('L');  // Python 2
      result.push_back(size);
      if (!take(',') && peek() != ')') return damaged("the shape is not closed");
    }
    return result;
  }

  std::string_view text_;
};

template <class T>
void reorder_from_fortran(std::span<const T> from, const Shape& shape, std::span<T> to) {
  // Strides of `shape` with the first axis fastest.
  Shape strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    strides[axis] = step;
    step *= shape[axis];
  }
  Shape index(shape.size(), 0);
  std::int64_t offset = 0;
  for (T& element : to) {
    element = from[static_cast<std::size_t>(offset)];
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

Tensor from_fortran(const Tensor& tensor) {
  Tensor result = Tensor::zeros(tensor.dtype(), tensor.shape());
  const auto reorder = [&](auto zero) {
    using T = decltype(zero);
    reorder_from_fortran<T>(tensor.as<T>(), tensor.shape(), result.mutable_as<T>());
  };
  switch (dtype_size(tensor.dtype())) {
    case 1: reorder(std::uint8_t{}); break;
    case 2: reorder(std::uint16_t{}); break;
    case 4: reorder(std::uint32_t{}); break;
    default: reorder(std::uint64_t{}); break;
  }
  return result;
}

Expected<std::string> read_header_text(const ReadBytes& read, std::uint64_t& size) {
  const auto next = [&](std::uint64_t bytes, std::string_view what) -> Expected<std::string> {
    if (size < bytes) return make_error("is truncated: it ends inside its {}", what);
    std::string text(bytes, '\0');
    OPDIFF_RETURN_IF_ERROR(read(text.data(), bytes));
    size -= bytes;
    return text;
  };
  OPDIFF_TRY(const std::string start, next(8, "header"));
  if (!start.starts_with(kMagic)) return make_error("is not in .npy format");
  const int major = static_cast<unsigned char>(start[6]);
  if (major < 1 || major > 3) return make_error("has the .npy format version {}; 1 to 3 are supported", major);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  OPDIFF_TRY(const std::string length_text, next(length_bytes, "header"));
  std::uint32_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(length_text[i]);
  if (length > kMaxHeaderBytes)
    return make_error("has a header of {} bytes; {} are supported", length, kMaxHeaderBytes);
  return next(length, "header");
}

}  // namespace

Expected<Tensor> read_npy_stream(const ReadBytes& read, std::uint64_t size) {
  OPDIFF_TRY(const std::string text, read_header_text(read, size));
  OPDIFF_TRY(const Header header, HeaderParser(text).parse());
  OPDIFF_TRY(const std::int64_t count, checked_element_count(header.shape));
  const std::uint64_t bytes = static_cast<std::uint64_t>(count) * dtype_size(header.dtype);
  if (bytes != size)
    return make_error("has shape {}, so {} bytes of {}, but {} after its header", to_string(header.shape), bytes,
                      dtype_name(header.dtype), size);
  OPDIFF_RETURN_IF_ERROR(check_fits_in_memory(bytes));
  Tensor tensor = Tensor::zeros(header.dtype, header.shape);
  const std::span<std::byte> data = tensor.mutable_bytes();
  OPDIFF_RETURN_IF_ERROR(read(reinterpret_cast<char*>(data.data()), bytes));
  const std::size_t width = dtype_size(header.dtype);
  if (header.swap_bytes)
    for (std::size_t i = 0; i < data.size(); i += width) std::reverse(data.begin() + i, data.begin() + i + width);
  if (header.dtype == DType::boolean)
    for (auto& value : tensor.mutable_as<std::uint8_t>()) value = value != 0;
  return header.fortran_order && header.shape.size() > 1 ? from_fortran(tensor) : tensor;
}

std::string npy_header(const Tensor& tensor) {
  std::string descr;
  const std::size_t width = dtype_size(tensor.dtype());
  switch (tensor.dtype()) {
    case DType::bf16: descr = "<V2"; break;
    case DType::boolean: descr = "|b1"; break;
    default: {
      const char kind = is_float(tensor.dtype()) ? 'f' : is_signed_integer(tensor.dtype()) ? 'i' : 'u';
      descr = fmt::format("{}{}{}", width == 1 ? '|' : '<', kind, width);
    }
  }
  const Shape& shape = tensor.shape();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                 fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const std::size_t before = kMagic.size() + 4;
  text.resize((before + text.size() + 1 + 63) / 64 * 64 - before, ' ');
  text.back() = '\n';
  OPDIFF_CHECK(text.size() <= kMaxHeaderBytes);
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace opdiff
