"""The engine's side of docs/formats/wire.md in Python, to try a worker without the engine.

    with Worker(["path/to/worker"]) as worker:
        worker.hello()
        outcome = worker.case([node("Relu", ["x"], ["y"])], {"x": x}, {"w": w}, ["y"])

Tensors are numpy arrays; bfloat16 ones are Bfloat16 (numpy has no such dtype)."""

import array
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess

import numpy as np

SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0008  # seal, shrink, grow, write
F_ADD_SEALS = 1033

NAMES = {"float64": "double", "float32": "float", "float16": "float16", "bool": "bool"}
NAMES.update({f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)})
TYPES = {name: np.dtype(dtype) for dtype, name in NAMES.items()}


class Bfloat16:
    """A bfloat16 tensor as its bits."""

    def __init__(self, values):
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        self.bits = rounded.astype(np.uint16)
        self.shape = self.bits.shape

    def float64(self):
        return (self.bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def dtype_name(tensor):
    return "bfloat16" if isinstance(tensor, Bfloat16) else NAMES[tensor.dtype.name]


def node(op, inputs, outputs, name=None, domain="", **attributes):
    return {"id": name or outputs[0], "op": op, "domain": domain, "inputs": inputs, "outputs": outputs,
            "attributes": attributes}


class Arena:
    def __init__(self):
        self.parts = []
        self.size = 0

    def add(self, name, tensor):
        data = tensor.bits if isinstance(tensor, Bfloat16) else np.ascontiguousarray(tensor)
        described = {"name": name, "dtype": dtype_name(tensor), "shape": list(tensor.shape), "offset": self.size}
        self.parts.append((self.size, data.tobytes()))
        self.size += (data.nbytes + 63) // 64 * 64
        return described

    def descriptor(self):
        fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        for offset, data in self.parts:
            os.pwrite(fd, data, offset)
        os.ftruncate(fd, max(self.size, 64))
        fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
        return fd


def attribute(value, arena):
    if isinstance(value, dict):
        return value  # already in the wire's form
    if isinstance(value, bool) or isinstance(value, int):
        return {"int": int(value)}
    if isinstance(value, float):
        return {"float": value if np.isfinite(value) else str(value)}
    if isinstance(value, str):
        return {"string": value}
    if isinstance(value, np.ndarray):
        return {"tensor": arena.add("", value)}
    kind = "floats" if any(isinstance(item, float) for item in value) else "ints"
    return {kind: list(value)}


class WorkerDied(Exception):
    pass


class Worker:
    def __init__(self, command, log=None):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket = ours
        self.socket.settimeout(120)
        fd = theirs.fileno()

        def to_descriptor_3():
            os.dup2(fd, 3) if fd != 3 else os.set_inheritable(3, True)

        self.process = subprocess.Popen(command, preexec_fn=to_descriptor_3, pass_fds=(3, fd), stderr=log,
                                        stdout=log)
        theirs.close()
        self.request_id = 0
        self.handle = 0

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.socket.close()
        self.process.wait(timeout=10)

    def send_raw(self, data, descriptors=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        sent = self.socket.sendmsg([data], rights)
        self.socket.sendall(data[sent:])

    def read(self, size):
        data = b""
        descriptors = array.array("i")
        while len(data) < size:
            part, control, _, _ = self.socket.recvmsg(min(size - len(data), 1 << 20), socket.CMSG_SPACE(16))
            for level, kind, payload in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    descriptors.frombytes(payload[:len(payload) - len(payload) % descriptors.itemsize])
            if not part:
                raise WorkerDied(f"the worker closed its socket (exit status {self.process.wait(timeout=10)})")
            data += part
        return data, list(descriptors)

    def ask(self, verb, arena=None, **request):
        self.request_id += 1
        request.update(protocol=1, id=self.request_id, verb=verb)
        body = json.dumps(request).encode()
        descriptors = [arena.descriptor()] if arena else []
        try:
            self.send_raw(struct.pack("<I", len(body)) + body, descriptors)
        except BrokenPipeError:
            raise WorkerDied("the worker no longer reads") from None
        finally:
            for fd in descriptors:
                os.close(fd)
        header, received = self.read(4)
        body, _ = self.read(struct.unpack("<I", header)[0])
        reply = json.loads(body)
        assert reply["protocol"] == 1 and reply["id"] == self.request_id, reply
        assert reply["outcome"] in ("ok", "unsupported", "error", "out-of-memory"), reply
        assert reply["outcome"] == "ok" or reply["reason"], reply
        if reply.get("outputs"):
            reply["outputs"] = self.tensors(reply["outputs"], received)
        elif "outputs" in reply:
            reply["outputs"] = {}
        return reply

    @staticmethod
    def tensors(described, descriptors):
        assert len(descriptors) == 1, "outputs come with exactly one arena"
        fd = descriptors[0]
        size = os.fstat(fd).st_size
        tensors = {}
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as data:
            for item in described:
                assert item["offset"] % 64 == 0
                bfloat16 = item["dtype"] == "bfloat16"
                dtype = np.dtype(np.uint16) if bfloat16 else TYPES[item["dtype"]]
                count = int(np.prod(item["shape"], dtype=np.int64))
                assert item["offset"] + count * dtype.itemsize <= size
                values = np.frombuffer(data, dtype, count, item["offset"]).copy().reshape(item["shape"])
                if bfloat16:
                    wrapped = Bfloat16(np.zeros(item["shape"]))
                    wrapped.bits = values
                    values = wrapped
                tensors[item["name"]] = values
        os.close(fd)
        return tensors

    def hello(self, **options):
        return self.ask("hello", options=options)

    def prepare(self, nodes, inputs, initialisers, outputs, opset=17, isolated=False, shapes=True, kernels=False):
        self.handle += 1
        arena = Arena()
        graph = {
            "name": "test", "opset": opset, "opsets": {"": opset},
            "inputs": [{"name": name, "dtype": dtype_name(tensor), "shape": list(tensor.shape) if shapes else None}
                       for name, tensor in inputs.items()],
            "outputs": [{"name": name, "dtype": "float", "shape": None} for name in outputs],
            "initialisers": [arena.add(name, tensor) for name, tensor in initialisers.items()],
            "nodes": [dict(item, attributes={name: attribute(value, arena)
                                             for name, value in item["attributes"].items()}) for item in nodes],
        }
        model = arena.add("", np.zeros(0, np.uint8))
        return self.ask("prepare", arena, handle=self.handle, graph=graph, isolated=isolated, profile=True, kernels=kernels,
                        model={"offset": model["offset"], "bytes": 0})

    def run(self, inputs, repeat=1, handle=None):
        arena = Arena()
        described = [arena.add(name, tensor) for name, tensor in inputs.items()]
        return self.ask("run", arena if described else None, handle=handle or self.handle, inputs=described,
                        repeat=repeat)

    def case(self, nodes, inputs, initialisers, outputs, **options):
        """prepare, run twice (the second must repeat the first), release. The reply is the first run's, with the kernels
        that either told."""
        reply = self.prepare(nodes, inputs, initialisers, outputs, **options)
        if reply["outcome"] != "ok":
            return reply
        first = self.run(inputs)
        if first["outcome"] == "ok":
            second = self.run(inputs, repeat=2)
            assert second["outcome"] == "ok" and len(second["wall_ms"]) == 2, second
            for name, tensor in first["outputs"].items():
                again = second["outputs"][name]
                bits = [item.bits if isinstance(item, Bfloat16) else item for item in (tensor, again)]
                assert bits[0].tobytes() == bits[1].tobytes(), f"{name} differs on the second run"
            first["kernels"] = first.get("kernels", reply.get("kernels"))
        self.ask("release", handle=self.handle)
        return first
