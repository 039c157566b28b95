"""From ONNX operators to native torch calls. Each binding is a function of a Call and of the node's inputs.

Data may be moved (padded, sliced, reshaped) to meet a call's terms; arithmetic is torch's alone. Where torch has no
native equivalent the binding raises Unsupported. pooling.py has the convolutions' and the pools' geometry, updates.py
the losses and optimisers.
"""
import functools

import torch
import torch.nn.functional as F

import pooling
import updates
from opdiff_worker import Unsupported

TORCH = {"double": torch.float64, "float": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
         "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8,
         "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64, "bool": torch.bool}
# TensorProto.DataType values, for Cast's `to`.
ONNX_CODES = {1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
              10: "float16", 11: "double", 12: "uint32", 13: "uint64", 16: "bfloat16"}

BINDINGS = {}
# Inputs that torch wants as Python numbers: handed over as lists or scalars when they are constants of the graph.
STATIC_INPUTS = {"Reshape": {1}, "Slice": {1, 2, 3, 4}, "Pad": {1, 2, 3}, "Squeeze": {1}, "Unsqueeze": {1},
                 "ReduceMean": {1}, "ReduceSum": {1}, "ReduceMax": {1}, "ReduceMin": {1}, "Clip": {1, 2}, "Dropout": {1, 2}}


# A constant without dimensions is a number in torch's code, x * 0.5: its compiler's patterns know it as such.
NUMBER_INPUTS = {"Mul"}


def is_number(call, constant):
    """Whether an input goes to torch as a Python number; not where its gradient may be wanted."""
    return call.op in NUMBER_INPUTS and not call.is_differentiated and constant.dim() == 0 and \
        constant.is_floating_point()


class Call:
    """A node's attributes and the model's opset."""

    def __init__(self, node, opset):
        self.op = node.op
        self.attributes = node.attributes
        self.opset = opset
        self.output_count = len(node.outputs)
        self.is_differentiated = getattr(node, "is_differentiated", False)  # alone: every output has a cotangent

    def get(self, name, default=None):
        return self.attributes.get(name, default)


def binding(name):
    def add(function):
        BINDINGS[name] = function
        return function
    return add


def numbers(value):
    """A static input as Python numbers: a list, or a scalar of a tensor without dimensions."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def scalar(value):
    value = numbers(value)
    while isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"one number expected, got {len(value)}")
        value = value[0]
    return value


BINDINGS.update({
    "Conv": pooling.convolution, "ConvTranspose": pooling.transposed_convolution, "MaxPool": pooling.max_pool,
    "AveragePool": pooling.average_pool, "GlobalAveragePool": pooling.global_average_pool,
    "Relu": lambda call, x: torch.relu(x),
    "LeakyRelu": lambda call, x: F.leaky_relu(x, call.get("alpha", 0.009999999776482582)),  # 0.01 in float
    "Sigmoid": lambda call, x: torch.sigmoid(x),
    "Tanh": lambda call, x: torch.tanh(x),
    "Elu": lambda call, x: F.elu(x, call.get("alpha", 1.0)),
    "Exp": lambda call, x: torch.exp(x),
    "Log": lambda call, x: torch.log(x),
    "Sqrt": lambda call, x: torch.sqrt(x),
    "Neg": lambda call, x: torch.neg(x),
    "Reciprocal": lambda call, x: torch.reciprocal(x),
    "Abs": lambda call, x: torch.abs(x),
    "Erf": lambda call, x: torch.erf(x),
    "Pow": lambda call, x, y: torch.pow(x, y),
    "Greater": lambda call, a, b: torch.gt(a, b),
    "Where": lambda call, condition, x, y: torch.where(condition, x, y),
    "Max": lambda call, *tensors: functools.reduce(torch.maximum, tensors),
    "Min": lambda call, *tensors: functools.reduce(torch.minimum, tensors),
    "Add": lambda call, a, b: torch.add(a, b),
    "Sub": lambda call, a, b: torch.sub(a, b),
    "Mul": lambda call, a, b: torch.mul(a, b),
    "MatMul": lambda call, a, b: torch.matmul(a, b),
    "Identity": lambda call, x: x,
    "Concat": lambda call, *tensors: torch.cat(tensors, call.get("axis", 1)),
    **updates.BINDINGS,
})


@binding("Gemm")
def gemm(call, a, b, c=None):
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    trans_a, trans_b = call.get("transA", 0), call.get("transB", 0)
    if not a.is_floating_point():
        if alpha != int(alpha) or beta != int(beta):
            raise Unsupported(f"integer Gemm with alpha={alpha}, beta={beta}")
        alpha, beta = int(alpha), int(beta)
    if not trans_a and trans_b and alpha == 1 and (c is None or (beta == 1 and c.dim() == 1 and c.shape[0] == b.shape[0])):
        return F.linear(a, b, c)
    a = a.t() if trans_a else a
    b = b.t() if trans_b else b
    if c is None:
        product = torch.mm(a, b)
        return product if alpha == 1 else product * alpha
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


@binding("Einsum")
def einsum(call, *operands):
    if operands[0].dtype in (torch.int8, torch.int16, torch.int32, torch.uint8):
        raise Unsupported(f"einsum of {operands[0].dtype}: torch adds it up in int64")
    return torch.einsum(call.get("equation"), *operands)


@binding("Div")
def div(call, a, b):
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@binding("BatchNormalization")
def batch_normalization(call, x, scale, bias, mean, variance):
    if call.get("training_mode", 0):
        return updates.batch_normalization(call, x, scale, bias, mean, variance)
    if call.get("spatial", 1) != 1:
        raise Unsupported("BatchNormalization with spatial=0")
    if call.output_count > 1:
        raise Unsupported("BatchNormalization with more than one output")
    epsilon = call.get("epsilon", 9.999999747378752e-06)  # 1e-5 in float
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


def _softmax(function):
    def bound(call, x):
        if call.opset >= 13:
            return function(x, call.get("axis", -1))
        axis = call.get("axis", 1)  # before opset 13: over all dimensions from axis on
        flat = flatten_at(x, axis if axis >= 0 else axis + x.dim())
        return function(flat, 1).reshape(x.shape)
    return bound


BINDINGS["Softmax"] = _softmax(lambda x, axis: torch.softmax(x, axis))
BINDINGS["LogSoftmax"] = _softmax(lambda x, axis: torch.log_softmax(x, axis))


@binding("Clip")
def clip(call, x, low=None, high=None):
    low = call.get("min") if low is None else low
    high = call.get("max") if high is None else high
    if low is None and high is None:
        return x
    if isinstance(low, torch.Tensor) or isinstance(high, torch.Tensor):
        def as_tensor(bound):
            return bound if bound is None or isinstance(bound, torch.Tensor) else torch.tensor(scalar(bound), dtype=x.dtype)
        return torch.clamp(x, as_tensor(low), as_tensor(high))
    return torch.clamp(x, None if low is None else scalar(low), None if high is None else scalar(high))


def _reduction(function):
    def bound(call, x, axes=None):
        axes = call.get("axes") if axes is None else numbers(axes)
        if not axes:
            if call.get("noop_with_empty_axes", 0):
                return x
            axes = range(x.dim())
        return function(x, tuple(axes), bool(call.get("keepdims", 1)))
    return bound


def _mean(x, axes, keep):
    if not x.is_floating_point():
        raise Unsupported(f"torch.mean of {x.dtype}")
    return torch.mean(x, axes, keep)


def _of_something(function):
    def bound(x, axes, keep):
        if any(x.shape[axis] == 0 for axis in axes):
            raise Unsupported(f"torch.{function.__name__} of nothing")
        return function(x, axes, keep)
    return bound


BINDINGS["ReduceMean"] = _reduction(_mean)
BINDINGS["ReduceSum"] = _reduction(lambda x, axes, keep: torch.sum(x, axes, keep, dtype=x.dtype))
BINDINGS["ReduceMax"] = _reduction(_of_something(torch.amax))
BINDINGS["ReduceMin"] = _reduction(_of_something(torch.amin))


def flatten_at(x, axis):
    rows = 1
    for size in x.shape[:axis]:
        rows *= size
    columns = 1
    for size in x.shape[axis:]:
        columns *= size
    return x.reshape(rows, columns)


@binding("Flatten")
def flatten(call, x):
    axis = call.get("axis", 1)
    return flatten_at(x, axis if axis >= 0 else axis + x.dim())


@binding("Reshape")
def reshape(call, x, shape):
    shape = numbers(shape)
    if not call.get("allowzero", 0):
        shape = [x.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    if -1 in shape and x.numel() == 0:  # torch refuses -1 beside a zero
        known = 1
        for size in shape:
            known *= size if size != -1 else 1
        if known == 0:
            raise ValueError(f"the -1 of shape {shape} is not determined")
        shape = [0 if size == -1 else size for size in shape]
    return x.reshape(shape)


@binding("Transpose")
def transpose(call, x):
    return x.permute(call.get("perm", list(range(x.dim()))[::-1]))


@binding("Pad")
def pad(call, x, pads=None, value=None, axes=None):
    pads = numbers(pads) if pads is not None else call.get("pads")
    value = scalar(value) if value is not None else call.get("value", 0)
    if axes is not None:
        axes = [axis % x.dim() for axis in numbers(axes)]
        full = [0] * (2 * x.dim())
        for i, axis in enumerate(axes):
            full[axis], full[axis + x.dim()] = pads[i], pads[i + len(axes)]
        pads = full
    mode = call.get("mode", "constant")
    rank = x.dim()
    first = next((i for i in range(rank) if pads[i] or pads[rank + i]), rank)
    trailing = rank - first  # dimensions to pad, counted from the last
    torch_pads = [count for i in range(rank - 1, first - 1, -1) for count in (pads[i], pads[rank + i])]
    if not torch_pads:
        return x
    if mode == "constant":
        return F.pad(x, torch_pads, "constant", value)
    native = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}.get(mode)
    if native is None or trailing > 3:
        raise Unsupported(f"Pad in mode {mode} over {trailing} dimensions")
    if any(count < 0 for count in torch_pads):
        raise Unsupported(f"Pad in mode {mode} with negative pads")
    # torch pads the last `trailing` of trailing + 2 dimensions.
    shape = [1] * max(0, trailing + 2 - rank) + list(x.shape)
    while len(shape) > trailing + 2:
        shape[0:2] = [shape[0] * shape[1]]
    padded = F.pad(x.reshape(shape), torch_pads, native)
    return padded.reshape(list(x.shape[:first]) + list(padded.shape[2:]))


@binding("Slice")
def slice_(call, x, starts=None, ends=None, axes=None, steps=None):
    starts = numbers(starts) if starts is not None else call.get("starts")
    ends = numbers(ends) if ends is not None else call.get("ends")
    axes = numbers(axes) if axes is not None else call.get("axes", list(range(len(starts))))
    steps = numbers(steps) if steps is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        size = x.shape[axis]
        begin, stop, step = slice(start, end, step).indices(size)
        count = len(range(begin, stop, step))
        if step < 0 and count:  # torch has no negative steps
            x = x.flip(axis)
            begin, step = size - 1 - begin, -step
        last = begin + (count - 1) * step + 1
        x = x[(slice(None),) * (axis % x.dim()) + ((slice(begin, last, step) if count else slice(0, 0)),)]
    return x


@binding("Squeeze")
def squeeze(call, x, axes=None):
    axes = numbers(axes) if axes is not None else call.get("axes")
    if axes is None:
        return torch.squeeze(x)
    for axis in axes:
        if x.shape[axis] != 1:
            raise ValueError(f"Squeeze of axis {axis}, whose size is {x.shape[axis]}")
    return torch.squeeze(x, tuple(axes))


@binding("Unsqueeze")
def unsqueeze(call, x, axes=None):
    axes = numbers(axes) if axes is not None else call.get("axes")
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = torch.unsqueeze(x, axis)
    return x


@binding("Dropout")
def dropout(call, x, ratio=None, training_mode=None, mask=None):
    if training_mode is not None and scalar(training_mode):
        return updates.dropout(call, x, ratio, mask)
    if call.output_count < 2:
        return x
    return x, torch.ones_like(x, dtype=torch.bool if call.opset >= 10 else x.dtype)


@binding("Constant")
def constant(call):
    for name, dtype in (("value_float", torch.float32), ("value_floats", torch.float32), ("value_int", torch.int64),
                        ("value_ints", torch.int64)):
        if name in call.attributes:
            return torch.tensor(call.attributes[name], dtype=dtype)
    if "value" not in call.attributes:
        raise Unsupported(f"Constant with {', '.join(call.attributes) or 'no value'}")
    return to_torch(call.attributes["value"])


@binding("Shape")
def shape(call, x):
    return torch.tensor(list(x.shape)[slice(call.get("start", 0), call.get("end"))], dtype=torch.int64)


@binding("Cast")
def cast(call, x):
    code = call.get("to")
    if code not in ONNX_CODES:
        raise Unsupported(f"Cast to TensorProto.DataType {code}")
    return x.to(TORCH[ONNX_CODES[code]])


def to_torch(tensor):
    """A torch tensor on the memory of an opdiff_worker.Tensor."""
    if tensor.dtype == "bfloat16":
        return torch.from_numpy(tensor.array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(tensor.array)
