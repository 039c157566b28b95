"""Conv, ConvTranspose and the pools: ONNX's geometry (pads, auto_pad, ceil_mode) on torch's native calls."""
import torch
import torch.nn.functional as F

from opdiff_worker import Unsupported

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED_CONVOLUTIONS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
GLOBAL_AVERAGE_POOLS = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def dimensions(op, x):
    spatial = x.dim() - 2
    if not 1 <= spatial <= 3:
        raise Unsupported(f"{op} over {spatial} spatial dimensions")
    return spatial


class Geometry:
    """kernel, strides, dilations, and pads as begin and end for each spatial dimension; output sizes by ONNX's rule."""

    def __init__(self, call, sizes, kernel):
        count = len(sizes)
        self.sizes = list(sizes)
        self.kernel = list(kernel)
        self.strides = call.get("strides") or [1] * count
        self.dilations = call.get("dilations") or [1] * count
        self.ceil = bool(call.get("ceil_mode", 0))
        self.extent = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        auto = call.get("auto_pad", "NOTSET")
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            self.begin, self.end = [], []
            for size, stride, extent in zip(self.sizes, self.strides, self.extent):
                total = max((-(-size // stride) - 1) * stride + extent - size, 0)
                small, large = total // 2, total - total // 2
                self.begin.append(small if auto == "SAME_UPPER" else large)
                self.end.append(large if auto == "SAME_UPPER" else small)
        elif auto == "VALID":
            self.begin, self.end = [0] * count, [0] * count
        else:
            pads = call.get("pads") or [0] * (2 * count)
            self.begin, self.end = pads[:count], pads[count:]

    def outputs(self):
        result = []
        for i, size in enumerate(self.sizes):
            room = size + self.begin[i] + self.end[i] - self.extent[i]
            count = (-(-room // self.strides[i]) if self.ceil else room // self.strides[i]) + 1
            if self.ceil and (count - 1) * self.strides[i] >= size + self.begin[i]:
                count -= 1  # a window must not start in the padding at the end
            result.append(count)
        return result

    def symmetric(self):
        return self.begin == self.end

    def pad(self, x, value):
        pads = [count for begin, end in zip(reversed(self.begin), reversed(self.end)) for count in (begin, end)]
        return F.pad(x, pads, "constant", value) if any(pads) else x


def convolution(call, x, weight, bias=None):
    spatial = dimensions("Conv", x)
    geometry = Geometry(call, x.shape[2:], weight.shape[2:])
    padding = geometry.begin
    if not geometry.symmetric():
        x, padding = geometry.pad(x, 0), 0
    return CONVOLUTIONS[spatial](x, weight, bias, geometry.strides, padding, geometry.dilations, call.get("group", 1))


def transposed_convolution(call, x, weight, bias=None):
    """torch cuts as much off the beginning as off the end, less its output_padding; the rest is cut off the result."""
    spatial = dimensions("ConvTranspose", x)
    strides = call.get("strides") or [1] * spatial
    dilations = call.get("dilations") or [1] * spatial
    extra = call.get("output_padding") or [0] * spatial
    pads = call.get("pads") or [0] * (2 * spatial)
    auto, shape = call.get("auto_pad", "NOTSET"), call.get("output_shape")
    padding, output_padding, cuts = [], [], []
    for i, (stride, dilation) in enumerate(zip(strides, dilations)):
        reached = (x.shape[2 + i] - 1) * stride + (weight.shape[2 + i] - 1) * dilation + 1
        whole = reached + extra[i]
        begin, size = pads[i], whole - pads[i] - pads[spatial + i]
        if shape or auto in ("SAME_UPPER", "SAME_LOWER"):
            size = shape[i] if shape else min(whole, x.shape[2 + i] * stride)
            total = max(whole - size, 0)
            begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
        elif auto == "VALID":
            begin, size = 0, whole
        end = reached - begin - size  # negative: beyond the last tap
        if end > begin or begin - end < max(stride, dilation):
            padding.append(begin)
            output_padding.append(max(begin - end, 0))
            cuts.append((0, size))
        elif end >= 0:
            padding.append(end)
            output_padding.append(0)
            cuts.append((begin - end, size))
        else:
            raise Unsupported(f"ConvTranspose to {size} elements along spatial axis {i}, {-end} beyond the last tap")
    result = TRANSPOSED_CONVOLUTIONS[spatial](x, weight, bias, strides, padding, output_padding, call.get("group", 1),
                                              dilations)
    for i, (start, size) in enumerate(cuts):
        if result.shape[2 + i] != size:
            result = result.narrow(2 + i, start, size)
    return result


def _trim(result, geometry):
    """Drops windows that start in padding that torch took for data."""
    wanted = geometry.outputs()
    for i, count in enumerate(wanted):
        if result.shape[2 + i] < count:
            raise Unsupported(f"output {list(result.shape[2:])} in torch, {wanted} in ONNX")
        if result.shape[2 + i] > count:
            result = result.narrow(2 + i, 0, count)
    return result


def max_pool(call, x):
    spatial = dimensions("MaxPool", x)
    geometry = Geometry(call, x.shape[2:], call.get("kernel_shape"))
    indices = call.output_count > 1
    native = geometry.symmetric() and all(2 * pad <= kernel for pad, kernel in zip(geometry.begin, geometry.kernel))
    if indices and (not native or call.get("storage_order", 0)):
        raise Unsupported("MaxPool's Indices with such pads or storage_order=1")
    padding = geometry.begin
    original = x
    if not native:
        lowest = -float("inf") if x.is_floating_point() else torch.iinfo(x.dtype).min
        x, padding = geometry.pad(x, lowest), 0
    result = MAX_POOLS[spatial](x, geometry.kernel, geometry.strides, padding, geometry.dilations, ceil_mode=geometry.ceil,
                                return_indices=indices)
    if not indices:
        return _trim(result, geometry)
    values, places = result
    # torch counts within a channel, ONNX within the whole tensor.
    area = 1
    for size in original.shape[2:]:
        area *= size
    channels = torch.arange(original.shape[0] * original.shape[1]).reshape([*original.shape[:2]] + [1] * spatial)
    return _trim(values, geometry), _trim(places + channels * area, geometry)


def average_pool(call, x):
    spatial = dimensions("AveragePool", x)
    geometry = Geometry(call, x.shape[2:], call.get("kernel_shape"))
    if any(dilation != 1 for dilation in geometry.dilations):
        raise Unsupported("AveragePool with dilations")
    include = bool(call.get("count_include_pad", 0))
    padding = geometry.begin
    if not geometry.symmetric() or any(2 * pad > kernel for pad, kernel in zip(geometry.begin, geometry.kernel)):
        if not include:
            raise Unsupported(f"AveragePool with pads {geometry.begin} and {geometry.end} that are not counted")
        x, padding = geometry.pad(x, 0), 0
    return _trim(AVERAGE_POOLS[spatial](x, geometry.kernel, geometry.strides, padding, geometry.ceil, include), geometry)


def global_average_pool(call, x):
    return GLOBAL_AVERAGE_POOLS[dimensions("GlobalAveragePool", x)](x, 1)
