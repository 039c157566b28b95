"""The main loop of an opdiff worker: one file, needs only numpy. docs/formats/wire.md says what goes over the wire.

A backend's worker.py gives a class and serves it:

    from opdiff_worker import Backend, Unsupported, serve

    class MyBackend(Backend):
        def hello(self, options): return {"name": ..., "version": ..., "operators": [...], "dtypes": [...]}
        def prepare(self, graph, model, isolated, profile): return anything that run() needs
        def run(self, state, inputs): return {output name: Tensor or numpy array}

    serve(MyBackend())

The engine starts it as `python opdiff_worker.py path/to/worker.py`. An exception becomes the outcome `error` with its
message (`Unsupported` and NotImplementedError: `unsupported`, MemoryError: `out-of-memory`). Prints go to the log.
"""
import array
import ctypes
import gc
import json
import math
import mmap
import os
import runpy
import socket
import struct
import sys
import time
import traceback

import numpy

PROTOCOL = 1
MAXIMUM_FRAME = 64 << 20
ALIGNMENT = 64
SOCKET = 3

NUMPY = {"double": numpy.float64, "float": numpy.float32, "float16": numpy.float16, "bfloat16": numpy.uint16,
         "int8": numpy.int8, "int16": numpy.int16, "int32": numpy.int32, "int64": numpy.int64,
         "uint8": numpy.uint8, "uint16": numpy.uint16, "uint32": numpy.uint32, "uint64": numpy.uint64,
         "bool": numpy.bool_}
ONNX_NAMES = {numpy.dtype(kind): name for name, kind in NUMPY.items() if name != "bfloat16"}
ALL_DTYPES = list(NUMPY)


class Unsupported(Exception):
    """The backend has no honest native equivalent of what it was asked for."""


class Tensor:
    """A dtype by its ONNX name and a numpy array; of bfloat16 the array holds the raw bits as uint16."""

    __slots__ = ("dtype", "array")

    def __init__(self, array, dtype=None):
        self.array = array
        self.dtype = dtype or ONNX_NAMES[array.dtype]

    @property
    def shape(self):
        return self.array.shape


class Result:
    """What run() may return instead of the bare outputs: `failures` maps a node's id to (outcome, reason)."""

    def __init__(self, outputs, failures=None):
        self.outputs = outputs
        self.failures = failures or {}


class Node:
    """id, op, domain, inputs, outputs (names, "" is absent), attributes (plain values; tensors are Tensor)."""

    def __init__(self, data, tensor):
        self.id = data["id"]
        self.op = data["op"]
        self.domain = data.get("domain", "")
        self.inputs = data["inputs"]
        self.outputs = data["outputs"]
        self.attributes = {name: _attribute(value, tensor) for name, value in data.get("attributes", {}).items()}


class Training:
    """Of a training graph, for frameworks with autodiff of their own: `cotangents` (tensor -> the tensor that holds its
    cotangent), `gradients` (tensor -> the tensor that its gradient becomes), `backward` (ids of the nodes that autodiff
    replaces; all others are run as they are)."""

    def __init__(self, data):
        self.cotangents = data["cotangents"]
        self.gradients = data["gradients"]
        self.backward = set(data["backward"])


class Graph:
    """name, opset, opsets, inputs and outputs ({"name", "dtype", "shape"}), initialisers (name -> Tensor), nodes,
    `training` (a Training, or None) and `kernels` (whether Backend.kernels will be asked)."""

    training = None
    kernels = False

    def __init__(self, data, tensor):
        self.name = data.get("name", "")
        self.opsets = data.get("opsets", {})
        self.opset = data.get("opset", self.opsets.get("", 0))
        self.inputs = data["inputs"]
        self.outputs = data["outputs"]
        self.initialisers = {}
        for item in data.get("initialisers", []):
            view = tensor(item)
            self.initialisers[item["name"]] = Tensor(view.array.copy(), view.dtype)
        self.nodes = [Node(node, tensor) for node in data["nodes"]]


class Backend:
    """What a worker must answer. Everything but hello, prepare and run may stay as it is."""

    def hello(self, options):
        """options: the spec's key=value pairs. Raise on one that is unknown. Returns the reply's fields."""
        raise NotImplementedError

    def prepare(self, graph, model, isolated, profile):
        """graph: Graph; model: the same as ONNX bytes, or None. Returns whatever run() needs."""
        raise NotImplementedError

    def run(self, state, inputs):
        """inputs: name -> Tensor (views that are gone after the reply). Returns outputs by name, or a Result."""
        raise NotImplementedError

    def node_times(self, state):
        """Milliseconds by node id over the runs since the last call; {} when not known."""
        return {}

    def kernels(self, state):
        """What is executed for a graph whose `kernels` is true: a list of (name of a native call, [ids of the nodes that it
        stands for]). Asked after prepare() and, as long as the answer is None (not known), after each run()."""
        return None

    def release(self, state):
        pass


def instruction_set():
    """The widest vector extensions that this processor claims, as one word a feature: "avx512f vnni amx"."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line for line in file if line.startswith(("flags", "Features"))), "").split()
    except OSError:
        return ""
    known = [("amx_tile", "amx"), ("avx512f", "avx512f"), ("avx512_bf16", "avx512_bf16"), ("avx512_fp16", "avx512_fp16"),
             ("avx512_vnni", "avx512_vnni"), ("avx_vnni", "avx_vnni"), ("avx2", "avx2"), ("fma", "fma"),
             ("sve", "sve"), ("asimd", "asimd")]
    return " ".join(name for flag, name in known if flag in flags)


class _MemoryCounter:
    """What `--profile` preloads (sdk/preload); `there` is false without it."""

    def __init__(self):
        process = ctypes.CDLL(None)
        self.there = hasattr(process, "opdiff_peak_reset")
        if self.there:
            self.reset = process.opdiff_peak_reset
            self.reset.restype = None
            self.peak = process.opdiff_peak_bytes
            self.peak.restype = ctypes.c_int64


_memory = _MemoryCounter()


def memory_is_counted():
    """Whether each run's peak memory is measured: then a framework's own arena must be off, it would hide all."""
    return _memory.there


def check_options(options, known):
    """Raises unless every key of options is in `known` (key -> collection of values, or None for any)."""
    for key, value in options.items():
        if key not in known:
            raise ValueError(f"unknown option '{key}'; known: {', '.join(sorted(known)) or 'none'}")
        if known[key] is not None and value not in known[key]:
            raise ValueError(f"option {key}={value}: must be one of {', '.join(known[key])}")


def _number(value):
    return float(numpy.float32(value))  # an attribute is a float; accepts "nan", "inf" and "-inf" too


def _attribute(value, tensor):
    kind, data = next(iter(value.items()))
    if kind == "float":
        return _number(data)
    if kind == "floats":
        return [_number(item) for item in data]
    if kind == "tensor":
        view = tensor(data)
        return Tensor(view.array.copy(), view.dtype)
    return data


class _Arena:
    """The memfd of a request, mapped copy-on-write: a framework that writes into its inputs harms only itself."""

    def __init__(self, descriptor):
        self.map = None
        if descriptor is not None:
            size = os.fstat(descriptor).st_size
            if size:
                self.map = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)
            os.close(descriptor)

    def tensor(self, item):
        kind = NUMPY[item["dtype"]]
        shape = tuple(item["shape"])
        count = math.prod(shape)
        if count == 0:
            return Tensor(numpy.empty(shape, kind), item["dtype"])
        return Tensor(numpy.frombuffer(self.map, kind, count, item["offset"]).reshape(shape), item["dtype"])

    def bytes(self, item):
        return bytes(self.map[item["offset"]:item["offset"] + item["bytes"]])


def _plain(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _receive_exactly(connection, size):
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return data


def _receive(connection):
    """(request, arena), or None when the engine has gone."""
    head, descriptors, _, _ = socket.recv_fds(connection, 4, 1)
    while head and len(head) < 4:
        more = connection.recv(4 - len(head))
        if not more:
            return None
        head += more
    if not head:
        return None
    body = _receive_exactly(connection, struct.unpack("<I", head)[0])
    if body is None:
        return None
    return json.loads(body.decode()), _Arena(descriptors[0] if descriptors else None)


def _send(connection, reply, tensors=()):
    """tensors: [(name, Tensor)], which go into an arena of their own and into reply["outputs"]."""
    descriptor = None
    if tensors:
        descriptor = os.memfd_create("opdiff-outputs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        offset = 0
        items = []
        for name, tensor in tensors:
            data = numpy.asarray(tensor.array, order="C")
            items.append({"name": name, "dtype": tensor.dtype, "shape": list(data.shape), "offset": offset})
            view = memoryview(data.reshape(-1).view(numpy.uint8)) if data.size else b""
            written = 0
            while written < len(view):
                written += os.pwrite(descriptor, view[written:], offset + written)
            offset += (len(view) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        os.ftruncate(descriptor, offset)
        reply["outputs"] = items
    body = json.dumps(_plain(reply), allow_nan=False).encode()
    if len(body) > MAXIMUM_FRAME:
        raise ValueError(f"reply of {len(body)} bytes is longer than a frame may be")
    frame = struct.pack("<I", len(body)) + body
    ancillary = []
    if descriptor is not None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    sent = connection.sendmsg([frame], ancillary)
    if sent < len(frame):
        connection.sendall(frame[sent:])
    if descriptor is not None:
        os.close(descriptor)


def _one_line(error):
    text = str(error).strip() or "no message"
    return f"{type(error).__name__}: " + " ".join(text.split())[:4000]


class _Loop:
    def __init__(self, backend):
        self.backend = backend
        self.states = {}
        self.untold = set()  # handles of graphs whose kernels are asked for and not known yet

    def answer(self, request, arena):
        """Returns (reply fields, tensors)."""
        verb = request["verb"]
        if verb == "hello":
            reply = {"build": "", "device": "cpu", "isa": instruction_set(), "gradient": False, "importing": False,
                     "passes": []}
            reply.update(self.backend.hello(request.get("options", {})))
            return reply, ()
        if verb == "prepare":
            graph = Graph(request["graph"], arena.tensor)
            model = arena.bytes(request["model"]) if request.get("model") else None
            graph.training = Training(request["training"]) if request.get("training") else None
            graph.kernels = request.get("kernels", False)
            state = self.backend.prepare(graph, model, request.get("isolated", False), request.get("profile", False))
            self.states[request["handle"]] = (state, request.get("profile", False))
            if graph.kernels:
                self.untold.add(request["handle"])
            return self._kernels(request["handle"], state), ()
        if verb in ("run", "gradient", "step"):
            return self._run(request, arena)
        if verb == "release":
            state = self.states.pop(request["handle"], None)
            self.untold.discard(request["handle"])
            if state is not None:
                self.backend.release(state[0])
            return {}, ()
        if verb == "bye":
            return {}, ()
        raise Unsupported(f"verb '{verb}'")

    def _kernels(self, handle, state):
        kernels = self.backend.kernels(state) if handle in self.untold else None
        if kernels is None:
            return {}
        self.untold.discard(handle)
        return {"kernels": [{"kernel": name, "nodes": list(nodes)} for name, nodes in kernels]}

    def _run(self, request, arena):
        if request["handle"] not in self.states:
            raise KeyError(f"handle {request['handle']} was never prepared")
        state, profile = self.states[request["handle"]]
        inputs = {item["name"]: arena.tensor(item) for item in request["inputs"]}
        wall = []
        peaks = []
        processor = time.process_time()
        for _ in range(max(1, int(request.get("repeat", 1)))):
            result = None
            if _memory.there:
                _memory.reset()
            start = time.perf_counter()
            result = self.backend.run(state, inputs)
            wall.append((time.perf_counter() - start) * 1e3)
            if _memory.there:
                peaks.append(_memory.peak())
        reply = {"wall_ms": wall, "cpu_ms": (time.process_time() - processor) * 1e3, "outputs": [], "failures": {}}
        if _memory.there:
            reply["peak_bytes"] = peaks
        reply["node_ms"] = self.backend.node_times(state) if profile else {}
        reply.update(self._kernels(request["handle"], state))
        if isinstance(result, Result):
            reply["failures"] = {node: {"outcome": outcome, "reason": reason}
                                 for node, (outcome, reason) in result.failures.items()}
            result = result.outputs
        return reply, [(name, value if isinstance(value, Tensor) else Tensor(numpy.asarray(value)))
                       for name, value in result.items()]


def serve(backend):
    """Answers requests until the engine says bye or goes away. Does not return."""
    os.set_inheritable(SOCKET, False)
    connection = socket.socket(fileno=SOCKET)
    loop = _Loop(backend)
    gc.freeze()  # a framework's hundred thousand objects stay: looking through them takes longer than a small graph
    while True:
        received = _receive(connection)
        if received is None:
            break
        request, arena = received
        tensors = ()
        try:
            reply, tensors = loop.answer(request, arena)
            reply["outcome"] = "ok"
        except (Unsupported, NotImplementedError) as error:
            reply = {"outcome": "unsupported", "reason": str(error) or _one_line(error)}
        except MemoryError as error:
            reply = {"outcome": "out-of-memory", "reason": _one_line(error)}
        except Exception as error:  # whatever the framework throws is data
            traceback.print_exc()
            reply = {"outcome": "error", "reason": _one_line(error)}
        reply["protocol"] = PROTOCOL
        reply["id"] = request.get("id", -1)
        del arena
        try:
            _send(connection, reply, tensors)
        except (BrokenPipeError, ConnectionResetError):
            break
        if request.get("verb") == "bye":
            break
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # frameworks' own exit handlers take their time, and some crash


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: opdiff_worker.py path/to/worker.py")
    sys.modules["opdiff_worker"] = sys.modules["__main__"]  # worker.py imports this very module
    worker = os.path.abspath(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(worker)
    runpy.run_path(worker, run_name="__main__")


if __name__ == "__main__":
    main()
