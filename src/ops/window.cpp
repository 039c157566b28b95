#include "ops/window.h"

#include <algorithm>

namespace opdiff {
namespace {

// Keeps every product of two of these numbers within 64 bits.
constexpr std::int64_t kLargest = std::int64_t{1} << 30;

Expected<Shape> spatial_attribute(const Call& call, const std::string& name, std::size_t rank, std::int64_t otherwise,
                                  std::int64_t least) {
  Shape values = call.integers(name, Shape(rank, otherwise));
  if (values.size() != rank)
    return make_error("attribute '{}' is {}, expected {} values for {} spatial dimensions", name, to_string(values),
                      rank, rank);
  for (const std::int64_t v : values)
    if (v < least)
      return make_error("attribute '{}' is {}, each value must be at least {}", name, to_string(values), least);
    else if (v > kLargest)
      return make_error("attribute '{}' is {}, values above 2^30 are not supported", name, to_string(values));
  return values;
}

// What the attributes say by themselves: kernel, strides, dilations, and pads where they are given.
Expected<Window> read_window(const Call& call, std::size_t rank, const Shape& kernel) {
  Window w;
  w.kernel = kernel;
  if (kernel.size() != rank)
    return make_error("attribute 'kernel_shape' is {}, expected {} values for {} spatial dimensions", to_string(kernel),
                      rank, rank);
  for (const std::int64_t k : kernel)
    if (k < 1 || k > kLargest)
      return make_error("attribute 'kernel_shape' is {}, each value must be at least 1 and at most 2^30",
                        to_string(kernel));
  OPDIFF_TRY(w.strides, spatial_attribute(call, "strides", rank, 1, 1));
  OPDIFF_TRY(w.dilations, spatial_attribute(call, "dilations", rank, 1, 1));
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID" && auto_pad != "SAME_UPPER" && auto_pad != "SAME_LOWER")
    return make_error("attribute 'auto_pad' is '{}', expected NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto_pad);
  w.pads_begin.assign(rank, 0);
  w.pads_end.assign(rank, 0);
  w.input.assign(rank, 0);
  w.output.assign(rank, 0);
  if (auto_pad != "NOTSET") return w;
  const Shape pads = call.integers("pads", Shape(2 * rank, 0));
  if (pads.size() != 2 * rank)
    return make_error("attribute 'pads' is {}, expected {} values (begins, then ends)", to_string(pads), 2 * rank);
  for (const std::int64_t p : pads)
    if (p < 0 || p > kLargest)
      return make_error("attribute 'pads' is {}, values must not be negative nor above 2^30", to_string(pads));
  std::copy_n(pads.begin(), rank, w.pads_begin.begin());
  std::copy_n(pads.begin() + static_cast<std::ptrdiff_t>(rank), rank, w.pads_end.begin());
  return w;
}

std::int64_t reach_of(const Window& w, std::size_t d) { return (w.kernel[d] - 1) * w.dilations[d] + 1; }

// The odd element of a total padding is at the end (SAME_UPPER) or at the beginning.
void split_padding(Window& w, std::size_t d, std::int64_t total, bool upper) {
  w.pads_begin[d] = upper ? total / 2 : total - total / 2;
  w.pads_end[d] = total - w.pads_begin[d];
}

}  // namespace

Expected<Window> make_window(const Call& call, const Shape& input_spatial, const Shape& kernel, bool pooling) {
  const std::size_t rank = input_spatial.size();
  OPDIFF_TRY(Window w, read_window(call, rank, kernel));
  w.input = input_spatial;
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  const bool ceil_mode = pooling && call.integer("ceil_mode", 0) != 0;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t reach = reach_of(w, d);
    if (same) {
      w.output[d] = (w.input[d] + w.strides[d] - 1) / w.strides[d];
      const std::int64_t total = std::max<std::int64_t>((w.output[d] - 1) * w.strides[d] + reach - w.input[d], 0);
      split_padding(w, d, total, auto_pad == "SAME_UPPER");
      continue;
    }
    const std::int64_t room = w.input[d] + w.pads_begin[d] + w.pads_end[d] - reach;
    if (room < 0)
      return make_error(
          "the window does not fit: spatial dimension {} has {} elements and padding {} + {}, the dilated kernel {}", d,
          w.input[d], w.pads_begin[d], w.pads_end[d], reach);
    w.output[d] = room / w.strides[d] + 1;
    if (ceil_mode && room % w.strides[d] != 0 && w.output[d] * w.strides[d] < w.input[d] + w.pads_begin[d])
      ++w.output[d];
  }
  return w;
}

Expected<Window> make_transposed_window(const Call& call, const Shape& input_spatial, const Shape& kernel) {
  const std::size_t rank = input_spatial.size();
  OPDIFF_TRY(Window w, read_window(call, rank, kernel));
  w.output = input_spatial;
  OPDIFF_TRY(const Shape output_padding, spatial_attribute(call, "output_padding", rank, 0, 0));
  const bool has_shape = call.has_attribute("output_shape");
  OPDIFF_TRY(const Shape output_shape, spatial_attribute(call, "output_shape", rank, 1, 1));
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (auto_pad != "NOTSET" && call.has_attribute("pads"))
    return make_error("attribute 'pads' is given although 'auto_pad' is '{}'", auto_pad);
  for (std::size_t d = 0; d < rank; ++d) {
    if (w.output[d] < 1 || w.output[d] > kLargest)
      return make_error("spatial dimension {} of X has {} elements, expected at least 1 and at most 2^30", d,
                        w.output[d]);
    if (output_padding[d] >= std::max(w.strides[d], w.dilations[d]))
      return make_error("attribute 'output_padding' is {}, each value must be below the stride {} or the dilation {}",
                        to_string(output_padding), w.strides[d], w.dilations[d]);
    const std::int64_t whole = (w.output[d] - 1) * w.strides[d] + reach_of(w, d) + output_padding[d];
    if (has_shape || same) {
      const std::int64_t wanted = has_shape ? output_shape[d] : w.output[d] * w.strides[d];
      split_padding(w, d, std::max<std::int64_t>(whole - wanted, 0), auto_pad == "SAME_UPPER");
      w.input[d] = has_shape ? wanted : std::min(whole, wanted);
      continue;
    }
    w.input[d] = whole - w.pads_begin[d] - w.pads_end[d];
    if (w.input[d] < 1)
      return make_error("attribute 'pads' leaves nothing of spatial dimension {}: {} elements less {} + {}", d, whole,
                        w.pads_begin[d], w.pads_end[d]);
  }
  return w;
}

Tap tap_at(const Window& w, std::int64_t out, std::int64_t tap) {
  std::int64_t position = 0, scale = 1;
  bool in_input = true, in_padding = true;
  for (std::size_t d = w.input.size(); d-- > 0;) {
    const std::int64_t o = out % w.output[d], k = tap % w.kernel[d];
    out /= w.output[d];
    tap /= w.kernel[d];
    const std::int64_t x = o * w.strides[d] - w.pads_begin[d] + k * w.dilations[d];
    in_input = in_input && x >= 0 && x < w.input[d];
    in_padding = in_padding && x < w.input[d] + w.pads_end[d];
    position += x * scale;
    scale *= w.input[d];
  }
  return {in_input ? position : -1, in_padding};
}

std::int64_t reader_at(const Window& w, std::int64_t position, std::int64_t tap) {
  std::int64_t out = 0, scale = 1;
  for (std::size_t d = w.input.size(); d-- > 0;) {
    const std::int64_t x = position % w.input[d], k = tap % w.kernel[d];
    position /= w.input[d];
    tap /= w.kernel[d];
    const std::int64_t shifted = x + w.pads_begin[d] - k * w.dilations[d];
    if (shifted < 0 || shifted % w.strides[d] != 0 || shifted / w.strides[d] >= w.output[d]) return -1;
    out += shifted / w.strides[d] * scale;
    scale *= w.output[d];
  }
  return out;
}

std::vector<std::int64_t> tap_table(const Window& w) {
  const std::int64_t taps = w.kernel_size(), outputs = w.output_size();
  std::vector<std::int64_t> table(static_cast<std::size_t>(taps * outputs));
  for (std::int64_t tap = 0; tap < taps; ++tap)
    for (std::int64_t out = 0; out < outputs; ++out)
      table[static_cast<std::size_t>(tap * outputs + out)] = tap_at(w, out, tap).input;
  return table;
}

}  // namespace opdiff
