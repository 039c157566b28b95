"""The few fields of serialised ONNX that the worker reads by itself: its environments have no onnx package."""


def varint(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def fields(data):
    """(number, value, start, end) of each field of a protobuf message: a varint's value, the bytes of anything longer."""
    position = 0
    while position < len(data):
        start = position
        tag, position = varint(data, position)
        kind = tag & 7
        if kind == 0:
            value, position = varint(data, position)
        elif kind in (1, 2, 5):
            length, position = varint(data, position) if kind == 2 else (8 if kind == 1 else 4, position)
            value = data[position:position + length]
            position += length
        else:
            raise ValueError("not an ONNX model")
        yield tag >> 3, value, start, position


def ir_version(model, replacement=None):
    """ModelProto.ir_version of serialised `model`, or with `replacement` (below 128) the model with that version."""
    for number, value, start, end in fields(model):
        if number == 1:
            return value if replacement is None else model[:start] + bytes([0x08, replacement]) + model[end:]
    return 0 if replacement is None else bytes([0x08, replacement]) + model


class OnnxNode:
    """A NodeProto without its attributes."""

    def __init__(self, data):
        self.inputs, self.outputs, self.name, self.op, self.domain = [], [], "", "", ""
        for number, value, _, _ in fields(data):
            if number == 1:
                self.inputs.append(str(value, "utf-8"))
            elif number == 2:
                self.outputs.append(str(value, "utf-8"))
            elif number == 3:
                self.name = str(value, "utf-8")
            elif number == 4:
                self.op = str(value, "utf-8")
            elif number == 7:
                self.domain = str(value, "utf-8")


def nodes_of(model):
    """The nodes of a serialised ModelProto's graph."""
    graph = next(value for number, value, _, _ in fields(memoryview(model)) if number == 7)
    return [OnnxNode(value) for number, value, _, _ in fields(graph) if number == 1]
