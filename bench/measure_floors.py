#!/usr/bin/env python3
"""Measures the absolute floors of onnxruntime's Sigmoid, Tanh and Elu, in units of u (2^-24 in f32, 2^-53 in f64).

    python bench/measure_floors.py        (needs numpy and onnxruntime)

Prints, per operator and type, over a dense sweep of both signs: the largest error in ulp of the result where the result is
not small (what the budget of docs/numerics.md, section 4, is about), and the largest absolute error in u where the error is
beyond 4 ulp (the floor that src/ops/operators/{sigmoid,tanh,elu}.cpp hold as kApproximationFloor, rounded up).
"""
import struct

import numpy
import onnxruntime


def field(number, payload):
    """One length-delimited protobuf field."""
    length, head = len(payload), bytes([number << 3 | 2])
    size = b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return head + size + bytes([length]) + payload


def model(op, onnx_type):
    """A serialised ONNX model of one node: ModelProto { ir_version 8, opset 17, graph }."""
    shape = field(2, field(1, field(2, b"n")))
    value = lambda name: field(1, name) + field(2, field(1, bytes([1 << 3, onnx_type]) + shape))
    node = field(1, b"x") + field(2, b"y") + field(4, op.encode())
    graph = field(1, node) + field(2, b"g") + field(11, value(b"x")) + field(12, value(b"y"))
    return bytes([1 << 3, 8]) + field(7, graph) + field(8, bytes([2 << 3, 17]))


def reference(op, x):
    """In a type at least eleven digits wider: f64 for f32, x87 long double for f64."""
    if op == "Sigmoid":
        e = numpy.exp(-abs(x))
        return numpy.where(x < 0, e, 1) / (1 + e)
    if op == "Tanh":
        return numpy.tanh(x)
    return numpy.where(x < 0, numpy.expm1(numpy.minimum(x, 0)), x)


def sweep(dtype):
    """Every 17th f32 of magnitude 1e-6 to 100, both signs; the same count of f64, spread alike."""
    low, high = (struct.unpack("<I", struct.pack("<f", v))[0] for v in (1e-6, 100.0))
    x = numpy.arange(low, high, 17, dtype=numpy.uint32).view(numpy.float32).astype(dtype)
    if dtype == numpy.float64:
        x = x * (1 + numpy.random.default_rng(0).uniform(0, 2.0**-16, x.size))
    return numpy.concatenate([x, -x])


def measure(op, dtype, onnx_type):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model(op, onnx_type), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return " ".join(str(error).split())[:80]
    x = sweep(dtype)
    wide = numpy.float64 if dtype == numpy.float32 else numpy.longdouble
    right = reference(op, x.astype(wide))
    got = session.run(None, {"x": x})[0].astype(wide)
    u = wide(2.0) ** (-24 if dtype == numpy.float32 else -53)
    with numpy.errstate(divide="ignore"):
        ulp = 2 * u * 2.0 ** numpy.floor(numpy.log2(numpy.abs(right)))
    error = numpy.abs(got - right)
    ordinary = numpy.abs(right) > 0.01
    beyond = error > 4 * ulp
    text = f"{float((error / ulp)[ordinary].max()):6.2f} ulp where |y| > 0.01; "
    if not beyond.any():
        return text + "nowhere beyond 4 ulp"
    worst = numpy.flatnonzero(beyond)[error[beyond].argmax()]
    return text + (f"floor {float(error[worst] / u):5.2f} u (at x = {float(x[worst]):.9g}: {float(got[worst]):.6g} for "
                   f"{float(right[worst]):.6g}), {100 * beyond.mean():.1f} % beyond 4 ulp")


def main():
    print(f"onnxruntime {onnxruntime.__version__}, numpy {numpy.__version__}")
    for op in ("Sigmoid", "Tanh", "Elu"):
        for dtype, onnx_type in ((numpy.float32, 1), (numpy.float64, 11)):
            print(f"{op:8} {numpy.dtype(dtype).name:8} {measure(op, dtype, onnx_type)}")


if __name__ == "__main__":
    main()
