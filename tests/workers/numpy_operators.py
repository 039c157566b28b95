"""Plain float64 definitions of ONNX operators for tests of workers: slow, obvious, independent of opdiff's own."""

import itertools
import math

import numpy as np


def pads_of(spatial, kernel, strides, dilations, pads, auto_pad):
    rank = len(spatial)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        begin, end = [], []
        for i in range(rank):
            out = -(-spatial[i] // strides[i])
            total = max((out - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - spatial[i], 0)
            small, large = total // 2, total - total // 2
            begin.append(small if auto_pad == "SAME_UPPER" else large)
            end.append(large if auto_pad == "SAME_UPPER" else small)
        return begin, end
    return list(pads[:rank]), list(pads[rank:])


def windows(x, kernel, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0):
    """Yields (position, list of (tap, input position or None where padded, True where inside the padded input))."""
    spatial, rank = x.shape[2:], x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    begin, end = pads_of(spatial, kernel, strides, dilations, pads or [0] * 2 * rank, auto_pad)
    out = []
    for i in range(rank):
        room = spatial[i] + begin[i] + end[i] - (kernel[i] - 1) * dilations[i] - 1
        count = (math.ceil if ceil_mode else math.floor)(room / strides[i]) + 1
        if ceil_mode and (count - 1) * strides[i] >= spatial[i] + begin[i]:
            count -= 1
        out.append(count)
    found = []
    for position in itertools.product(*map(range, out)):
        taps = []
        for tap in itertools.product(*map(range, kernel)):
            at = [p * s + t * d - b for p, s, t, d, b in zip(position, strides, tap, dilations, begin)]
            real = all(0 <= a < n for a, n in zip(at, spatial))
            padded = all(-b <= a < n + e for a, n, b, e in zip(at, spatial, begin, end))
            taps.append((tap, tuple(at) if real else None, padded))
        found.append((position, taps))
    return out, found


def conv(x, w, bias=None, group=1, **window):
    x, w = x.astype(np.float64), w.astype(np.float64)
    window.pop("kernel_shape", None)
    out, found = windows(x, w.shape[2:], **window)
    y = np.zeros((x.shape[0], w.shape[0], *out))
    step_in, step_out = w.shape[1], w.shape[0] // group
    for position, taps in found:
        for tap, at, _ in taps:
            if at is None:
                continue
            for g in range(group):
                part = x[(slice(None), slice(g * step_in, (g + 1) * step_in), *at)]
                rows = slice(g * step_out, (g + 1) * step_out)
                y[(slice(None), rows, *position)] += part @ w[(rows, slice(None), *tap)].T
    if bias is not None:
        y += bias.astype(np.float64).reshape(1, -1, *[1] * len(out))
    return y


def conv_transpose(x, w, bias=None, group=1, strides=None, dilations=None, pads=None, output_padding=None,
                   output_shape=None, auto_pad="NOTSET", kernel_shape=None):
    x, w = x.astype(np.float64), w.astype(np.float64)
    spatial, kernel, rank = x.shape[2:], w.shape[2:], x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    whole = [(n - 1) * s + (k - 1) * d + 1 + extra for n, s, k, d, extra in
             zip(spatial, strides, kernel, dilations, output_padding or [0] * rank)]
    begin = list((pads or [0] * 2 * rank)[:rank])
    size = [n - p - q for n, p, q in zip(whole, begin, (pads or [0] * 2 * rank)[rank:])]
    if output_shape or auto_pad.startswith("SAME"):
        size = output_shape or [min(n, s * i) for n, s, i in zip(whole, strides, spatial)]
        totals = [max(n - m, 0) for n, m in zip(whole, size)]
        begin = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in totals]
    y = np.zeros((x.shape[0], group * w.shape[1], *size))
    step_in, step_out = w.shape[0] // group, w.shape[1]
    for position in itertools.product(*map(range, spatial)):
        for tap in itertools.product(*map(range, kernel)):
            at = tuple(p * s - b + t * d for p, s, b, t, d in zip(position, strides, begin, tap, dilations))
            if not all(0 <= a < n for a, n in zip(at, size)):
                continue
            for g in range(group):
                rows, columns = slice(g * step_in, (g + 1) * step_in), slice(g * step_out, (g + 1) * step_out)
                y[(slice(None), columns, *at)] += x[(slice(None), rows, *position)] @ w[(rows, slice(None), *tap)]
    return y if bias is None else y + bias.astype(np.float64).reshape(-1, *[1] * rank)


def pool(x, kind, kernel_shape, count_include_pad=0, **window):
    x = x.astype(np.float64)
    out, found = windows(x, kernel_shape, **window)
    y = np.zeros((*x.shape[:2], *out))
    for position, taps in found:
        values = np.array([x[(slice(None), slice(None), *at)] for _, at, _ in taps if at is not None])
        if kind == "max":
            y[(slice(None), slice(None), *position)] = values.max(0)
        else:
            count = sum(padded for _, _, padded in taps) if count_include_pad else len(values)
            y[(slice(None), slice(None), *position)] = values.sum(0) / count
    return y


def softmax(x, axis, log=False, flatten=False):
    shape, x = x.shape, x.astype(np.float64)
    if flatten:
        x, axis = x.reshape(math.prod(shape[:axis]), -1), 1
    shifted = x - x.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return (shifted - np.log(total) if log else np.exp(shifted) / total).reshape(shape)


def batch_normalization(x, scale, bias, mean, variance, epsilon=1e-5):
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale, bias, mean, variance = (t.astype(np.float64).reshape(shape) for t in (scale, bias, mean, variance))
    return (x.astype(np.float64) - mean) / np.sqrt(variance + epsilon) * scale + bias


def gemm(a, b, c=None, alpha=1.0, beta=1.0, transA=0, transB=0):
    a, b = a.astype(np.float64), b.astype(np.float64)
    y = alpha * ((a.T if transA else a) @ (b.T if transB else b))
    return y if c is None else y + beta * c.astype(np.float64)
