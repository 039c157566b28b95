// Sliding windows of convolutions and pools: ONNX's output sizes, padding and auto_pad, and walking the positions.
#pragma once

#include <vector>

#include "ops/call.h"

namespace opdiff {

struct Window {
  Shape input;  // spatial extents
  Shape kernel, strides, dilations, pads_begin, pads_end;
  Shape output;  // spatial extents

  std::int64_t input_size() const { return element_count(input); }
  std::int64_t kernel_size() const { return element_count(kernel); }
  std::int64_t output_size() const { return element_count(output); }
};

// Reads strides, dilations, pads, auto_pad and (pools) ceil_mode. Errors name the attribute and its value.
// With ceil_mode a last window that would start beyond the input and its begin padding is left out (ONNX operator
// specification, AveragePool-22 and MaxPool-22).
Expected<Window> make_window(const Call& call, const Shape& input_spatial, const Shape& kernel, bool pooling);

// The window of the convolution that ConvTranspose turns round: `output` is what it reads, `input` what it makes. Reads
// strides, dilations, pads, auto_pad, output_padding and output_shape (ConvTranspose-22). Padding is never negative:
// where a larger result is asked for, it goes on behind the last tap.
Expected<Window> make_transposed_window(const Call& call, const Shape& input_spatial, const Shape& kernel);

// For output position `out` (flat) and tap `tap` (flat in kernel): the flat input position, or -1 in the padding.
// `inside_padding` is false where the tap lies beyond the declared end padding (only with ceil_mode).
struct Tap {
  std::int64_t input;
  bool inside_padding;
};
Tap tap_at(const Window& window, std::int64_t out, std::int64_t tap);

// The other way round: the output position whose tap `tap` reads the flat input `position`, -1: none has it there.
std::int64_t reader_at(const Window& window, std::int64_t position, std::int64_t tap);

// tap_at for every (tap, output), tap-major: table[tap * output_size + out].
std::vector<std::int64_t> tap_table(const Window& window);

}  // namespace opdiff
