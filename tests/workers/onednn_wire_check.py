"""Every operator of the oneDNN worker against float64, odd geometry, and graphs that must be refused.

    python tests/workers/onednn_wire_check.py DIR/worker [key=value ...]

A sanity check over the wire alone; judging is the engine's. Needs numpy."""

import functools
import sys

import numpy as np

import numpy_operators as reference
from wire_client import Bfloat16, Worker, WorkerDied, node

RANDOM = np.random.default_rng(7)
# Relative to the largest magnitude: far above honest rounding, far below a wrong operator.
LIMITS = {"float": 2e-5, "float16": 6e-3, "bfloat16": 5e-2}
STEPS = {"checked": 0, "failed": 0}


def normal(*shape, scale=1.0):
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def float64(tensor):
    return tensor.float64() if isinstance(tensor, Bfloat16) else np.asarray(tensor, np.float64)


def report(ok, what, detail=""):
    STEPS["checked"] += 1
    if not ok:
        STEPS["failed"] += 1
        print(f"FAILED {what}: {detail}")


def compare(what, got, right, limit):
    got = float64(got)
    if got.shape != right.shape:
        return report(False, what, f"shape {got.shape}, expected {right.shape}")
    if got.size == 0:
        return report(True, what)
    finite = np.isfinite(right)
    same = np.array_equal(got[~finite], right[~finite], equal_nan=True)
    error = np.abs(got - right)[finite].max(initial=0) / max(np.abs(right[finite]).max(initial=0), 1e-30)
    report(same and error <= limit, what, f"relative error {error:.2e}")


def lower(tensor, dtype):
    if not isinstance(tensor, np.ndarray) or tensor.dtype != np.float32 or dtype == "float":
        return tensor
    return tensor.astype(np.float16) if dtype == "float16" else Bfloat16(tensor)


def seen(tensor):
    return tensor.float64() if isinstance(tensor, Bfloat16) else tensor


def check(worker, dtypes, op, operands, right, weights=(), opset=17, outputs=1, expect="ok", **attributes):
    """`operands`: arrays, None where left out. `weights`: indices that are initialisers; each case is run with them
    and again as graph inputs. `right`: function of the operands in the dtype that is sent."""
    for dtype in dtypes:
        tensors = [None if tensor is None else lower(np.asarray(tensor), dtype) for tensor in operands]
        names = ["" if tensor is None else f"t{i}" for i, tensor in enumerate(tensors)]
        for constant in ([set(weights), set()] if weights else [set()]):
            inputs = {f"t{i}": t for i, t in enumerate(tensors) if t is not None and i not in constant}
            initialisers = {f"t{i}": tensors[i] for i in constant if tensors[i] is not None}
            what = f"{op} {dtype} {[None if t is None else t.shape for t in operands]} {attributes} opset {opset}"
            what += f" initialisers {sorted(constant)}"
            result_names = [f"y{i}" for i in range(outputs)]
            for shapes in (True, False):
                reply = worker.case([node(op, names, result_names, **attributes)], inputs, initialisers,
                                    result_names, opset=opset, shapes=shapes)
                if reply["outcome"] != expect:
                    report(False, what, f"{reply['outcome']}, expected {expect}: {reply.get('reason')}")
                elif expect != "ok":
                    report(op in reply["reason"] or "graph input" in reply["reason"], what, reply["reason"])
                else:
                    values = right(*[None if t is None else seen(t) for t in tensors])
                    compare(what, reply["outputs"]["y0"], np.asarray(values, np.float64), LIMITS[dtype])


def convolutions(check):
    def run(x, w, bias=None, **attributes):
        check("Conv", [x, w, bias], lambda *t: reference.conv(*t, **attributes), weights=(1, 2), **attributes)

    run(normal(2, 3, 9, 7), normal(4, 3, 3, 3), normal(4))
    run(normal(1, 1, 32, 32), normal(6, 1, 5, 5), normal(6))
    run(normal(1, 6, 9, 8), normal(4, 3, 3, 2), normal(4), group=2, pads=[2, 0, 1, 1], strides=[2, 1])
    run(normal(1, 16, 8, 8), normal(16, 1, 3, 3), group=16, pads=[1, 1, 1, 1])
    run(normal(1, 17, 6, 5), normal(19, 17, 1, 1))
    run(normal(1, 3, 11, 12), normal(5, 3, 3, 2), dilations=[2, 3], pads=[0, 1, 2, 3])
    run(normal(2, 3, 11), normal(5, 3, 4), normal(5), strides=[3], pads=[1, 2])
    run(normal(1, 4, 11), normal(6, 2, 4), normal(6), group=2, dilations=[2])
    run(normal(1, 2, 5, 6, 4), normal(3, 2, 2, 3, 2), normal(3), strides=[1, 2, 1], pads=[1, 0, 0, 0, 1, 1])
    run(normal(1, 3, 9, 1), normal(4, 3, 3, 1), normal(4))
    run(normal(1, 2, 2, 3), normal(3, 2, 1, 1), strides=[3, 4])
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        run(normal(1, 2, 8, 7), normal(3, 2, 4, 3), strides=[2, 3], auto_pad=mode, kernel_shape=[4, 3])
    run(normal(0, 3, 9, 7), normal(4, 3, 3, 3), normal(4))
    check("Conv", [normal(1, 3, 5), normal(4, 3, 3, 3)], None, expect="error")
    check("Conv", [normal(1, 3, 5, 5), normal(4, 2, 3, 3)], None, expect="error")
    check("Conv", [normal(1, 3, 2, 2), normal(4, 3, 3, 3)], None, expect="error")
    check("Conv", [normal(1, 3, 5, 5), normal(4, 3, 3, 3)], None, expect="error", strides=[0, 1])
    check("Conv", [normal(1, 3, 5, 5), normal(4, 3, 3, 3)], None, expect="error", group=0)
    check("Conv", [normal(1, 3, 5, 5), normal(4, 3, 3, 3)], None, expect="error", pads=[1 << 50] * 4)
    check("Conv", [normal(1, 1, 3, 3, 3, 3), normal(1, 1, 2, 2, 2, 2)], None, expect="unsupported")


def transposed_convolutions(check):
    def run(x, w, bias=None, **attributes):
        check("ConvTranspose", [x, w, bias], lambda *t: reference.conv_transpose(*t, **attributes), weights=(1, 2),
              **attributes)

    run(normal(2, 3, 5, 4), normal(3, 4, 3, 3), normal(4))
    run(normal(1, 6, 5, 4), normal(6, 2, 3, 2), normal(4), group=2, pads=[2, 0, 1, 1], strides=[2, 1])
    run(normal(1, 16, 4, 4), normal(16, 1, 3, 3), group=16, pads=[1, 1, 1, 1])
    run(normal(1, 3, 5, 6), normal(3, 5, 3, 2), dilations=[2, 3], pads=[0, 1, 2, 3])
    run(normal(2, 3, 5), normal(3, 5, 4), normal(5), strides=[3], pads=[1, 2])
    run(normal(1, 2, 3, 4, 2), normal(2, 3, 2, 3, 2), normal(3), strides=[1, 2, 1], pads=[1, 0, 0, 0, 1, 1])
    run(normal(1, 3, 4, 4), normal(3, 4, 3, 3), normal(4), strides=[2, 3], output_padding=[1, 2])
    run(normal(1, 3, 4, 4), normal(3, 4, 3, 3), normal(4), strides=[2, 2], output_shape=[8, 7])
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        run(normal(1, 2, 4, 3), normal(2, 3, 4, 3), strides=[2, 3], auto_pad=mode, kernel_shape=[4, 3])
    run(normal(0, 3, 5, 4), normal(3, 4, 3, 3), normal(4))
    check("ConvTranspose", [normal(1, 3, 5, 5), normal(2, 3, 3, 3)], None, expect="error")
    check("ConvTranspose", [normal(1, 3, 5, 5), normal(3, 3, 3, 3)], None, expect="error", group=2)
    check("ConvTranspose", [normal(1, 1, 3, 3, 3, 3), normal(1, 1, 2, 2, 2, 2)], None, expect="unsupported")


def pools(check):
    for x in (normal(2, 3, 9, 7), normal(1, 17, 8, 8)):
        for attributes in (dict(kernel_shape=[2, 2], strides=[2, 2]), dict(kernel_shape=[3, 2], pads=[1, 0, 2, 1]),
                           dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
                           dict(kernel_shape=[3, 3], strides=[2, 3], pads=[1, 1, 0, 0], ceil_mode=1),
                           dict(kernel_shape=[2, 2], strides=[3, 3]),
                           dict(kernel_shape=[2, 2], strides=[4, 4], pads=[1, 1, 1, 1], ceil_mode=1),
                           dict(kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
                           dict(kernel_shape=[2, 3], auto_pad="SAME_LOWER", strides=[2, 2])):
            check("MaxPool", [x], lambda t: reference.pool(t, "max", **attributes), **attributes)
            check("AveragePool", [x], lambda t: reference.pool(t, "mean", **attributes), **attributes)
            if not attributes.get("ceil_mode"):
                check("AveragePool", [x], lambda t: reference.pool(t, "mean", count_include_pad=1, **attributes),
                      count_include_pad=1, **attributes)
    dilated = dict(kernel_shape=[2, 3], dilations=[2, 3], pads=[1, 1, 0, 1])
    check("MaxPool", [normal(1, 3, 9, 11)], lambda t: reference.pool(t, "max", **dilated), **dilated)
    check("AveragePool", [normal(1, 3, 9, 11)], lambda t: reference.pool(t, "mean", **dilated), opset=19, **dilated)
    check("MaxPool", [normal(1, 2, 9)], lambda t: reference.pool(t, "max", [3]), kernel_shape=[3])
    check("AveragePool", [normal(1, 2, 5, 6, 4)], lambda t: reference.pool(t, "mean", [2, 3, 2], pads=[1] * 6),
          kernel_shape=[2, 3, 2], pads=[1] * 6)
    check("AveragePool", [normal(1, 1, 6, 6)], None, expect="unsupported", kernel_shape=[3, 3], strides=[2, 2],
          ceil_mode=1, count_include_pad=1)
    check("MaxPool", [normal(1, 1, 6, 6)], None, expect="unsupported", kernel_shape=[3, 3], outputs=2)
    check("MaxPool", [normal(1, 1, 6, 6)], None, expect="error")
    check("MaxPool", [normal(3, 6)], None, expect="error", kernel_shape=[2])
    check("MaxPool", [normal(1, 0, 6, 6)], lambda t: np.zeros((1, 0, 5, 5)), kernel_shape=[2, 2])
    for shape in ((2, 5, 3, 7), (1, 3, 9), (1, 2, 3, 4, 5), (1, 2, 1, 1)):
        check("GlobalAveragePool", [normal(*shape)], lambda t: t.mean(tuple(range(2, t.ndim)), keepdims=True, dtype=float))


def products(check):
    for a, b in (((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
                 ((2, 1, 3, 4), (5, 4, 2)), ((1, 3, 4), (6, 4, 1)), ((7, 1, 1), (7, 1, 1)), ((0, 4), (4, 5)), ((65, 129), (129, 33))):
        check("MatMul", [normal(*a), normal(*b)], lambda x, y: np.matmul(np.float64(x), np.float64(y)), weights=(1,))
    check("MatMul", [normal(3, 4), normal(5, 4)], None, expect="error")
    check("MatMul", [normal(2, 3, 4), normal(3, 4, 5)], None, expect="error")
    check("MatMul", [normal(3, 0), normal(0, 4)], None, expect="unsupported")
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            for c in (None, (5,), (3, 1), (3, 5), (1, 5), (), (1,)):
                for scale in (dict(), dict(alpha=0.5, beta=2.0)):
                    a = normal(*((4, 3) if trans_a else (3, 4)))
                    b = normal(*((5, 4) if trans_b else (4, 5)))
                    check("Gemm", [a, b, None if c is None else normal(*c)],
                          lambda *t: reference.gemm(*t, transA=trans_a, transB=trans_b, **scale), weights=(1, 2),
                          transA=trans_a, transB=trans_b, **scale)
    check("Gemm", [normal(5, 5), normal(5, 5)], lambda *t: reference.gemm(*t, transB=1), weights=(1,), transB=1)
    check("Gemm", [normal(3, 4), normal(4, 5), normal(2)], None, expect="error")
    check("Gemm", [normal(3, 4, 1), normal(4, 5)], None, expect="error")


def normalisations(check):
    for shape in ((2, 5, 4, 3), (3, 5), (2, 5, 7), (1, 17, 2, 3, 4), (0, 5, 4, 3)):
        vectors = [normal(shape[1]), normal(shape[1]), normal(shape[1]), np.abs(normal(shape[1])) + 0.1]
        check("BatchNormalization", [normal(*shape)] + vectors, lambda *t: reference.batch_normalization(*t, epsilon=1e-3),
              weights=(1, 2, 3, 4), epsilon=1e-3)
    check("BatchNormalization", [normal(2, 5)] + [normal(4)] * 4, None, expect="error")
    for op, log in (("Softmax", False), ("LogSoftmax", True)):
        for shape, axis in (((3, 10), -1), ((2, 3, 4), 1), ((2, 3, 4, 5), 0), ((4, 1), 1), ((5,), 0), ((0, 4), 1)):
            check(op, [normal(*shape, scale=3)], lambda t: reference.softmax(t, axis, log) if t.size else t, axis=axis)
            check(op, [normal(*shape, scale=3)],
                  lambda t: reference.softmax(t, axis % len(shape), log, flatten=True) if t.size else t, axis=axis,
                  opset=11)
        check(op, [normal(3, 4)], None, expect="error", axis=2)


def elementwise(check):
    x = normal(2, 17, 5, scale=3)
    cases = {"Relu": ({}, lambda t: np.maximum(t, 0)), "Tanh": ({}, lambda t: np.tanh(np.float64(t))),
             "Sigmoid": ({}, lambda t: 1 / (1 + np.exp(-np.float64(t)))),
             "LeakyRelu": ({"alpha": 0.25}, lambda t: np.where(t < 0, 0.25 * t, t)),
             "Elu": ({"alpha": 0.5}, lambda t: np.where(t < 0, 0.5 * np.expm1(np.float64(t)), t)),
             "Exp": ({}, lambda t: np.exp(np.float64(t))), "Neg": ({}, lambda t: -t)}
    for op, (attributes, right) in cases.items():
        for operand in (x, normal(), normal(0, 3), normal(1, 3, 1)):
            check(op, [operand], right, **attributes)
    for op, right in (("Log", np.log), ("Sqrt", np.sqrt)):
        check(op, [np.abs(x) + np.float32(0.1)], lambda t: right(np.float64(t)))
    low, high = np.float32(-0.5), np.float32(1)
    for pair in ((low, high), (low, None), (None, high), (None, None)):
        check("Clip", [x] + [None if p is None else np.array(p) for p in pair],
              lambda t, *_: np.clip(t, -np.inf if pair[0] is None else -0.5, np.inf if pair[1] is None else 1), weights=(1, 2))
    check("Clip", [x], lambda t: np.clip(t, -0.5, 1), opset=7, min=-0.5, max=1.0)
    check("Clip", [x, np.array(high), np.array(low)], None, expect="unsupported")
    for op, right in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)):
        for a, b in (((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((4,), (2, 3, 4)), ((2, 1, 4), (3, 1)), ((3, 1), (1, 5)),
                     ((), (2, 3)), ((2, 3), ()), ((), ()), ((1, 16, 5, 5), (1, 16, 1, 1)), ((0, 3), (3,)), ((5, 1, 1, 1, 2), (3, 1, 2))):
            check(op, [normal(*a), np.float32(normal(*b) + np.copysign(1, normal(*b)))],
                  lambda x, y: right(np.float64(x), np.float64(y)), weights=(1,))
        check(op, [normal(2, 3), normal(4)], None, expect="error")
    for op, right in (("Max", np.maximum), ("Min", np.minimum)):
        for shapes in (((2, 3, 4),), ((2, 3, 4), (2, 3, 4)), ((4,), (2, 3, 4)), ((2, 1, 4), (3, 1)), ((3, 1), (1, 5), (2, 3, 5), ())):
            check(op, [normal(*shape) for shape in shapes], lambda *t: functools.reduce(right, t))
    for op, right in (("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMin", np.min)):
        for axes, keep in (([1], 1), ([0, -1], 0), ([], 1), ([1, 2, 3], 1)):
            check(op, [normal(2, 3, 4, 5)], lambda t: right(np.float64(t), tuple(axes) or None, keepdims=bool(keep)),
                  opset=11, keepdims=keep, **({"axes": axes} if axes else {}))
        check(op, [normal(2, 3), np.array([1], np.int64)], lambda t, _: right(np.float64(t), 1, keepdims=True), weights=(1,), opset=18)
    for opset in (13, 18):
        for axes, keep in (([1], 1), ([0, -1], 0), ([], 1), ([], 0), ([1, 2, 3], 1)):
            attributes = {"keepdims": keep}
            operands = [normal(2, 3, 4, 5)]
            if axes and opset == 18:
                operands.append(np.array(axes, np.int64))
            elif axes:
                attributes["axes"] = axes
            check("ReduceMean", operands, lambda t, *_: np.mean(np.float64(t), tuple(axes) or None, keepdims=bool(keep)),
                  weights=(1,) if len(operands) > 1 else (), opset=opset, **attributes)
    check("ReduceMean", [normal(2, 1, 4)], lambda t: np.float64(t), axes=[1])


def movements(check):
    x = normal(2, 3, 4)
    i64 = lambda *values: np.array(values, np.int64)
    check("Transpose", [x], np.transpose)
    check("Transpose", [x], lambda t: np.transpose(t, (1, 0, 2)), perm=[1, 0, 2])
    check("Transpose", [normal(5, 5)], np.transpose)
    check("Transpose", [normal()], lambda t: t)
    check("Transpose", [i64(1, 2, 3, 4, 5, 6).reshape(2, 3)], np.transpose)
    check("Transpose", [x], None, expect="error", perm=[0, 0, 1])
    check("Reshape", [x, i64(4, -1)], lambda t, _: np.reshape(t, (4, 6)), weights=(1,))
    check("Reshape", [x, i64(0, 2, -1)], lambda t, _: np.reshape(t, (2, 2, 6)), weights=(1,))
    check("Reshape", [x, i64(5, -1)], None, weights=(1,), expect="error")
    check("Reshape", [normal(0, 4), i64(4, 0)], lambda t, _: np.reshape(t, (4, 0)), weights=(1,), opset=14, allowzero=1)
    check("Flatten", [x], lambda t: t.reshape(2, 12))
    check("Flatten", [x], lambda t: t.reshape(1, 24), axis=0)
    check("Squeeze", [normal(1, 3, 1)], np.squeeze)
    check("Squeeze", [normal(1, 3, 1), i64(-1)], lambda t, _: t.reshape(1, 3), weights=(1,))
    check("Squeeze", [x, i64(0)], None, weights=(1,), expect="error")
    check("Unsqueeze", [x, i64(0, -1)], lambda t, _: t.reshape(1, 2, 3, 4, 1), weights=(1,))
    check("Unsqueeze", [x], lambda t: t.reshape(2, 1, 3, 4), opset=11, axes=[1])
    check("Identity", [x], lambda t: t)
    check("Identity", [np.array([True, False])], lambda t: t)
    check("Dropout", [x], lambda t: t)
    check("Dropout", [x], lambda t: t, outputs=2)
    check("Concat", [x, normal(2, 5, 4), normal(2, 0, 4)], lambda *t: np.concatenate(t, 1), axis=1)
    check("Concat", [x], lambda t: t, axis=-1)
    check("Concat", [i64(1, 2), i64(3)], lambda *t: np.concatenate(t), axis=0)
    check("Concat", [x, normal(2, 5, 3)], None, axis=1, expect="error")
    check("Slice", [x, i64(1, 0), i64(99, -1), i64(1, 2)], lambda t, *_: t[:, 1:99, 0:-1], weights=(1, 2, 3))
    check("Slice", [x, i64(2), i64(1)], lambda t, *_: t[2:1], weights=(1, 2))
    check("Slice", [x], lambda t: t[:, 1:3], opset=9, starts=[1], ends=[3], axes=[1])
    check("Slice", [x, i64(0), i64(4), i64(2), i64(2)], None, weights=(1, 2, 3, 4), expect="unsupported")
    check("Slice", [i64(1, 2, 3, 4), i64(-1), i64(-(1 << 62)), i64(0), i64(-1)], lambda t, *_: t[::-1], weights=(1, 2, 3, 4))
    check("Pad", [x, i64(0, 1, 2, 1, 0, 0)], lambda t, _: np.pad(t, ((0, 1), (1, 0), (2, 0))), weights=(1,))
    check("Pad", [x, i64(0, -1, 2, 1, 0, -1), np.array(1.5, np.float32)], lambda t, *_: np.pad(
        t, ((0, 1), (0, 0), (2, 0)), constant_values=1.5)[:, 1:, :-1], weights=(1, 2))
    check("Pad", [x, i64(0, 0, 1, 0, 0, 1)], None, weights=(1,), expect="unsupported", mode="reflect")
    check("Cast", [x], lambda t: np.asarray(t, np.float16), to=10)
    check("Cast", [x], lambda t: t, to=1)
    check("Cast", [x], lambda t: Bfloat16(t).float64(), to=16)
    check("Cast", [np.array([1, -7, 2**31 - 1, 2**24 + 1], np.int32)], lambda t: np.float32(t), to=1)
    check("Cast", [np.array([1, -128, 127], np.int8)], np.float32, to=1)
    check("Cast", [i64(1, 2)], None, to=1, expect="unsupported")
    check("Cast", [x], None, to=7, expect="unsupported")
    check("Constant", [], lambda: np.arange(6).reshape(2, 3), value=np.arange(6, dtype=np.float32).reshape(2, 3))
    check("Constant", [], lambda: np.array(0.5), value_float=0.5)
    check("Shape", [x], lambda t: np.array(t.shape))
    check("Shape", [x], lambda t: np.array(t.shape[-2:]), opset=15, start=-2)


def graphs(worker):
    """Whole graphs, isolated batches, and hostile requests."""
    x, w = normal(1, 3, 12, 12), normal(16, 3, 3, 3)
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]),
             node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), node("Conv", ["p", "v"], ["d"]),
             node("Conv", ["p", "v"], ["e"]), node("Add", ["d", "e"], ["s"]), node("Tanh", ["s"], ["t"]),
             node("Shape", ["t"], ["h"]), node("Slice", ["h", "zero", "one"], ["batch"]),
             node("Concat", ["batch", "minus"], ["target"], axis=0), node("Reshape", ["t", "target"], ["f"]),
             node("Gemm", ["f", "g"], ["l"], transB=1), node("Softmax", ["l"], ["y"])]
    v, g = normal(8, 16, 1, 1, scale=0.1), normal(10, 288, scale=0.1)
    weights = {"w": w, "v": v, "g": g, "zero": np.array([0]), "one": np.array([1]), "minus": np.array([-1])}
    pooled = reference.pool(np.maximum(reference.conv(x, w, pads=[1] * 4), 0), "max", [2, 2], strides=[2, 2])
    right = reference.softmax(np.tanh(2 * reference.conv(pooled, v)).reshape(1, -1) @ np.float64(g).T, 1)
    for shapes in (True, False):
        reply = worker.case(nodes, {"x": x}, weights, ["y"], shapes=shapes)
        if reply["outcome"] != "ok":
            report(False, "whole graph", reply["reason"])
        else:
            compare("whole graph", reply["outputs"]["y"], right, 2e-5)

    batch = [node("Relu", ["x"], ["a"]), node("Nothing", ["x"], ["b"]), node("Conv", ["x", "v"], ["c"]),
             node("Reshape", ["x", "s"], ["d"]), node("Tanh", ["x"], ["e"])]
    inputs = {"x": x, "s": np.array([1, -1])}
    reply = worker.case(batch, inputs, {"v": v}, ["a", "b", "c", "d", "e"], isolated=True)
    report(reply["outcome"] == "ok" and sorted(reply["failures"]) == ["b", "c"] and sorted(reply["outputs"]) == ["a", "d", "e"]
           and reply["failures"]["b"]["outcome"] == "unsupported" and reply["failures"]["c"]["outcome"] == "error"
           and sorted(reply["node_ms"]) == ["a", "d", "e"], "isolated batch", reply)

    hostile = {
        "missing tensor": [node("Conv", ["x", "absent"], ["y"])],
        "no inputs": [node("Conv", [], ["y"])],
        "no outputs": [dict(node("Relu", ["x"], ["y"]), outputs=[])],
        "cycle": [node("Relu", ["y"], ["z"]), node("Relu", ["z"], ["y"])],
        "same name twice": [node("Relu", ["x"], ["x"], name="n"), node("Relu", ["x"], ["y"])],
        "output of nobody": [node("Relu", ["x"], ["z"])],
        "attribute of another type": [node("Conv", ["x", "w"], ["y"], pads="a")],
        "2^60 elements": [node("Pad", ["x", "big"], ["y"])],
        "tensor outside": [node("Constant", [], ["y"], value={"tensor": {"dtype": "float", "shape": [1 << 30], "offset": 0}})],
        "negative shape": [node("Constant", [], ["y"], value={"tensor": {"dtype": "float", "shape": [-4], "offset": 0}})],
        "unknown dtype": [node("Constant", [], ["y"], value={"tensor": {"dtype": "string", "shape": [0], "offset": 0}})],
        "offset of no multiple": [node("Constant", [], ["y"], value={"tensor": {"dtype": "float", "shape": [1], "offset": 4}})],
        "wrong domain": [node("Relu", ["x"], ["y"], domain="com.example")],
    }
    big = np.array([0, 0, 0, 0, 0, 0, 1 << 31, 1 << 31])
    for what, nodes in hostile.items():
        reply = worker.case(nodes, {"x": x}, {"w": w, "big": big}, ["y"])
        report(reply["outcome"] != "ok", f"hostile: {what}", "accepted")
    reply = worker.ask("run", handle=999, inputs=[])
    report(reply["outcome"] == "error", "a handle that is not prepared", reply)
    report(worker.ask("fly", handle=1)["outcome"] == "unsupported", "a verb that is not there")
    worker.prepare([node("Relu", ["x"], ["y"])], {"x": x}, {}, ["y"])
    for what, tensors in (("missing", {}), ("of other shape", {"x": x[:, :2]}), ("of other dtype", {"x": np.float16(x)})):
        report(worker.run(tensors)["outcome"] == "error", f"a graph input that is {what}")


def fusions(worker, dtypes, fuse):
    """What is fused with postops=1, told by the kernels; the same values with and without it."""
    x, w, b = normal(2, 6, 7, 8), normal(8, 6, 3, 3, scale=0.2), normal(8)
    conv = node("Conv", ["x", "w", "b"], ["c"])
    relu = lambda t: np.maximum(t, 0)
    vectors = {name: np.abs(normal(8)) + 0.1 for name in ("s", "h", "m", "v")}
    channels, image, number = normal(8, 1, 1), normal(2, 8, 5, 6), normal(1)
    convolved = lambda t: reference.conv(t["x"], t["w"], t["b"])
    norm = lambda t, of: reference.batch_normalization(of, t["s"], t["h"], t["m"], t["v"])
    a, k, bias, rows = normal(5, 16), normal(16, 8, scale=0.3), normal(8), normal(5, 8)
    product = node("MatMul", ["a", "k"], ["c"])
    multiplied = lambda t: np.float64(t["a"]) @ np.float64(t["k"])
    # What is in the graph, what is fused behind its first node (as oneDNN names it), and the right result.
    cases = [
        ([conv, node("Relu", ["c"], ["y"])], "eltwise_relu", lambda t: relu(convolved(t))),
        ([conv, node("Add", ["c", "image"], ["d"]), node("Relu", ["d"], ["y"])], "sum+eltwise_relu",
         lambda t: relu(convolved(t) + t["image"])),
        ([conv, node("Mul", ["channels", "c"], ["d"]), node("Add", ["d", "channels"], ["e"]),
          node("Tanh", ["e"], ["y"])], "binary_mul+binary_add+eltwise_tanh",
         lambda t: np.tanh(convolved(t) * t["channels"] + t["channels"])),
        ([conv, node("Sigmoid", ["c"], ["d"]), node("Mul", ["d", "image"], ["y"])], "eltwise_logistic+binary_mul",
         lambda t: t["image"] / (1 + np.exp(-convolved(t)))),
        ([conv, node("Sub", ["c", "number"], ["d"]), node("Div", ["d", "channels"], ["y"])], "binary_sub+binary_div",
         lambda t: (convolved(t) - t["number"]) / t["channels"]),
        ([conv, node("Sub", ["number", "c"], ["y"])], None, lambda t: t["number"] - convolved(t)),
        ([conv, node("Add", ["c", "wide"], ["y"])], None, lambda t: convolved(t) + t["wide"]),
        ([conv, node("Add", ["c", "deep"], ["y"])], None, lambda t: convolved(t)[None] + t["deep"]),
        ([node("BatchNormalization", ["image", "s", "h", "m", "v"], ["c"]), node("Relu", ["c"], ["y"])],
         "fuse_norm_relu", lambda t: relu(norm(t, t["image"]))),
        ([node("BatchNormalization", ["image", "s", "h", "m", "v"], ["c"]), node("Tanh", ["c"], ["y"])], None,
         lambda t: np.tanh(norm(t, t["image"]))),
        ([product, node("Add", ["c", "bias"], ["d"]), node("Relu", ["d"], ["y"])], "binary_add+eltwise_relu",
         lambda t: relu(multiplied(t) + t["bias"])),
        ([product, node("Mul", ["c", "rows"], ["y"])], "binary_mul", lambda t: multiplied(t) * t["rows"]),
        ([node("Gemm", ["a", "k", "bias"], ["c"], alpha=0.5), node("Add", ["bias", "c"], ["y"])], "binary_add",
         lambda t: 0.5 * multiplied(t) + 2 * np.float64(t["bias"])),
        ([node("MatMul", ["row", "k"], ["c"]), node("Add", ["c", "bias"], ["y"])], None,
         lambda t: np.float64(t["row"]) @ np.float64(t["k"]) + t["bias"]),
    ]
    tensors = dict(x=x, w=w, b=b, channels=channels, image=image, number=number, wide=normal(1, 1, 5, 1),
                   deep=normal(1, 1, 1, 1, 1), a=a, k=k,
                   bias=bias, rows=rows, row=normal(16), **vectors)
    for dtype in dtypes:
        for nodes, fused, right in cases:
            made = {name for item in nodes for name in item["outputs"]}
            sent = {name: lower(tensors[name], dtype) for item in nodes for name in item["inputs"] if name not in made}
            values = right({name: seen(tensor) for name, tensor in sent.items()})
            for known, shapes in ((("w", "b", "k"), True), (("w", "b", "k"), False), (tuple(sent)[1:], True), ((), True)):
                inputs = {name: tensor for name, tensor in sent.items() if name not in known}
                weights = {name: tensor for name, tensor in sent.items() if name in known}
                what = f"{dtype} {' '.join(item['op'] for item in nodes)} known {sorted(weights)} shapes {shapes}"
                reply = worker.case(nodes, inputs, weights, ["y"], shapes=shapes, kernels=True)
                if reply["outcome"] != "ok":
                    report(False, what, reply["reason"])
                    continue
                compare(what, reply["outputs"]["y"], values, LIMITS[dtype])
                told = [kernel for kernel in reply["kernels"] if kernel["nodes"]]
                report({name for kernel in told for name in kernel["nodes"]} == {item["id"] for item in nodes}, what, told)
                alone = len(nodes) if fused is None or not fuse else 1
                report(len(told) == alone and (alone > 1 or told[0]["kernel"].endswith(f" post:{fused}")), what, told)


def broken_frames(command):
    for what, data in (("length above the limit", b"\xff\xff\xff\xff"), ("no JSON", b"\x02\0\0\0{]"), ("no object", b"\x02\0\0\0[]"),
                       ("half a frame", b"\x10\0\0\0{")):
        with Worker(command) as worker:
            worker.send_raw(data)
            worker.socket.shutdown(1)
            try:
                worker.read(4)
                report(False, f"broken frame: {what}", "answered")
            except WorkerDied as death:
                report("status 1" in str(death), f"broken frame: {what}", str(death))
    with Worker(command) as worker:
        report(worker.hello(threads="many")["outcome"] == "error", "a wrong option")
        report(worker.hello(colour="red")["outcome"] == "error", "an unknown option")
        report(worker.ask("bye")["outcome"] == "ok" and worker.process.wait(timeout=10) == 0, "bye")


def main(command, options):
    with Worker([command]) as worker:
        hello = worker.hello(**options)
        assert hello["outcome"] == "ok", hello
        print(f"{hello['name']} {hello['version']} on {hello['isa']}: {', '.join(hello['dtypes'])}")
        dtypes = hello["dtypes"]
        for family in (convolutions, transposed_convolutions, pools, products, normalisations, elementwise, movements):
            before = dict(STEPS)
            family(lambda op, *rest, **keys: check(worker, dtypes, op, *rest, **keys))
            print(f"{family.__name__}: {STEPS['checked'] - before['checked']} checks, {STEPS['failed'] - before['failed']} failed")
        graphs(worker)
        fusions(worker, dtypes, options.get("postops") == "1")
    broken_frames([command])
    print(f"{STEPS['checked']} checks, {STEPS['failed']} failed")
    return 1 if STEPS["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], dict(option.split("=", 1) for option in sys.argv[2:])))
