#include "window.h"

#include <algorithm>

namespace opdiff::onednn {
namespace {

// Above it, sums of a few such numbers could overflow.
constexpr std::int64_t kLargest = std::int64_t{1} << 40;

Dims read(const sdk::Node& node, const std::string& name, std::size_t count, std::int64_t missing, std::int64_t least) {
  const Dims values = node.integers(name, Dims(count, missing));
  if (values.size() != count) {
    throw std::invalid_argument("attribute '" + name + "' has " + std::to_string(values.size()) + " values; expected " +
                                std::to_string(count));
  }
  for (const auto value : values) {
    if (value < least || value > kLargest) {
      throw std::invalid_argument("attribute '" + name + "' has the value " + std::to_string(value) +
                                  "; the least is " + std::to_string(least));
    }
  }
  return values;
}

Window read_attributes(const sdk::Node& node, std::size_t rank, const Dims& kernel) {
  Window window;
  if (kernel.empty() && !node.has("kernel_shape")) throw std::invalid_argument("attribute 'kernel_shape' is missing");
  window.kernel = node.has("kernel_shape") ? read(node, "kernel_shape", rank, 1, 1) : kernel;
  if (!kernel.empty() && window.kernel != kernel) {
    throw std::invalid_argument("attribute 'kernel_shape' is " + sdk::to_string(window.kernel) +
                                " but the weights have " + sdk::to_string(kernel));
  }
  window.strides = read(node, "strides", rank, 1, 1);
  window.dilations = read(node, "dilations", rank, 1, 1);
  window.begin.assign(rank, 0);
  window.end.assign(rank, 0);
  window.overhang.assign(rank, 0);
  const std::string mode = node.string("auto_pad", "NOTSET");
  if (mode == "NOTSET") {
    const Dims pads = read(node, "pads", 2 * rank, 0, 0);
    std::copy_n(pads.begin(), rank, window.begin.begin());
    std::copy_n(pads.begin() + static_cast<std::ptrdiff_t>(rank), rank, window.end.begin());
  } else if (mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER") {
    throw std::invalid_argument("attribute 'auto_pad' is '" + mode + "'");
  }
  return window;
}

}  // namespace

Dims Window::onednn_dilations() const {
  Dims result = dilations;
  for (auto& value : result) --value;
  return result;
}

Window read_window(const sdk::Node& node, const Dims& spatial, const Dims& kernel) {
  const std::size_t rank = spatial.size();
  Window window = read_attributes(node, rank, kernel);
  const std::string mode = node.string("auto_pad", "NOTSET");
  const bool ceiling = node.integer("ceil_mode", 0) != 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t extent = (window.kernel[i] - 1) * window.dilations[i] + 1;
    const std::int64_t stride = window.strides[i];
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      window.output.push_back((spatial[i] + stride - 1) / stride);
      const std::int64_t padding = std::max<std::int64_t>((window.output[i] - 1) * stride + extent - spatial[i], 0);
      const std::int64_t smaller = padding / 2;
      window.begin[i] = mode == "SAME_UPPER" ? smaller : padding - smaller;
      window.end[i] = padding - window.begin[i];
      continue;
    }
    const std::int64_t room = spatial[i] + window.begin[i] + window.end[i] - extent;
    if (room < 0) {
      throw std::invalid_argument("the window of " + std::to_string(extent) + " along spatial axis " +
                                  std::to_string(i) + " is larger than the padded input of " +
                                  std::to_string(room + extent));
    }
    std::int64_t count = room / stride + 1;
    // A window that would start in the right padding is left out, as ONNX has it.
    if (ceiling && room % stride != 0 && count * stride < spatial[i] + window.begin[i]) {
      window.overhang[i] = count * stride - room;
      ++count;
    }
    window.output.push_back(count);
  }
  return window;
}

Window read_transposed_window(const sdk::Node& node, const Dims& spatial, const Dims& kernel) {
  const std::size_t rank = spatial.size();
  Window window = read_attributes(node, rank, kernel);
  const Dims padding = read(node, "output_padding", rank, 0, 0);
  const Dims shape = node.has("output_shape") ? read(node, "output_shape", rank, 1, 1) : Dims();
  const std::string mode = node.string("auto_pad", "NOTSET");
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t stride = window.strides[i];
    const std::int64_t reached = (spatial[i] - 1) * stride + (window.kernel[i] - 1) * window.dilations[i] + 1;
    std::int64_t size = reached + padding[i] - window.begin[i] - window.end[i];
    if (!shape.empty() || mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      const std::int64_t whole = reached + padding[i];
      size = shape.empty() ? std::min(whole, spatial[i] * stride) : shape[i];
      const std::int64_t total = std::max<std::int64_t>(whole - size, 0);
      window.begin[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
    window.output.push_back(size);
    window.end[i] = reached - window.begin[i] - size;
  }
  return window;
}

}  // namespace opdiff::onednn
