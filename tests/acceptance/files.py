"""Small .onnx and .npz files without onnx and numpy."""

import io
import pathlib
import struct
import zipfile

FORMATS = {"<f4": "f", "<f8": "d", "<i8": "q", "|b1": "?"}
CODES = {"<f4": 1, "<f8": 11, "<i8": 7, "|u1": 2, "|b1": 9}  # TensorProto.DataType


def npz(path: pathlib.Path, **arrays) -> pathlib.Path:
    """Each array: (dtype, shape, values)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, (dtype, shape, values) in arrays.items():
            dimensions = "".join(f"{size}," for size in shape)
            header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({dimensions}), }}"
            header += " " * (-(len(header) + 11) % 64) + "\n"
            data = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)
    return path


def _field(number: int, value) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, str):
        value = value.encode()
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def _value_info(name: str, shape: list[int], dtype: str) -> bytes:
    dimensions = b"".join(_field(1, _field(1, size)) for size in shape)
    tensor = _field(1, CODES[dtype]) + _field(2, dimensions)
    return _field(1, name) + _field(2, _field(1, tensor))


def subgraph(attribute: str, nodes, outputs) -> bytes:
    """An attribute for onnx(): a graph without inputs, which takes what it needs from outside."""
    return _field(5, _field(1, attribute) + _field(6, _graph("inner", nodes, {}, outputs, "<f4")) + _field(20, 5))


def _graph(graph_name: str, nodes, inputs, outputs, dtype: str) -> bytes:
    graph = io.BytesIO()
    for name, op, taken, given, *attributes in nodes:
        body = b"".join(_field(1, item) for item in taken) + _field(2, given) + _field(3, name) + _field(4, op)
        graph.write(_field(1, body + b"".join(attributes)))
    graph.write(_field(2, graph_name))
    for number, values in ((11, inputs), (12, outputs)):
        for name, shape in values.items():
            own, shape = shape if isinstance(shape, tuple) else (dtype, shape)
            graph.write(_field(number, _value_info(name, shape, own)))
    return graph.getvalue()


def onnx(path: pathlib.Path, nodes, inputs, outputs, dtype: str = "<f4") -> pathlib.Path:
    """Nodes: (name, operator, inputs, output, attributes...); inputs and outputs: name -> shape or (dtype, shape)."""
    graph = _graph("small", nodes, inputs, outputs, dtype)
    path.write_bytes(_field(1, 8) + _field(8, _field(1, "") + _field(2, 17)) + _field(7, graph))
    return path


def small_model(folder: pathlib.Path) -> pathlib.Path:
    """relu, double, shifted, on [4, 8]: what workers/test_worker.py computes."""
    return onnx(
        folder / "small.onnx",
        [
            ("relu", "Relu", ["x"], "positive"),
            ("double", "Add", ["positive", "positive"], "twice"),
            ("product", "Mul", ["twice", "x"], "y"),
        ],
        {"x": [4, 8]},
        {"y": [4, 8]},
    )
