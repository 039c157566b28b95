// The sliding window of convolutions and pooling: ONNX's attributes resolved to explicit numbers, checked.
#pragma once

#include "node_builder.h"

namespace opdiff::onednn {

struct Window {
  Dims kernel, strides, dilations, begin, end, output;
  // How far the last window reaches past the padded input (only with ceil_mode), by axis.
  Dims overhang;

  Dims onednn_dilations() const;  // oneDNN counts the elements skipped: 0 means dense
};

// `spatial`: the input's spatial dimensions. `kernel`: the weights' dimensions, or empty where the attribute
// kernel_shape is required. Throws std::invalid_argument naming the attribute.
Window read_window(const sdk::Node& node, const Dims& spatial, const Dims& kernel);

// Of ConvTranspose: `output` is its result's, `begin` and `end` what is cut off; where the result goes on behind the
// last tap, `end` is negative.
Window read_transposed_window(const sdk::Node& node, const Dims& spatial, const Dims& kernel);

}  // namespace opdiff::onednn
