"""A worker for tests: a few operators in numpy, and every way to go wrong. The option `mode` says which."""
import array
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import numpy

import opdiff_worker
from opdiff_worker import Backend, NUMPY, Result, Tensor, Unsupported, serve

MODES = ["good", "hang", "crash", "exit", "close", "print", "garbage", "oversize", "short", "deep", "wrong-id", "wrong-dtype-name",
         "wrong-name", "missing", "outside", "sparse", "huge-shape", "negative-shape", "two-descriptors", "memory", "error",
         "memory-error", "child", "babble", "hello-error", "hello-crash", "slow", "temporary", "unknown-outcome", "binary",
         "late-kernels", "no-kernels", "odd-kernels"]


def widen(tensor):
    if tensor.dtype == "bfloat16":
        return (tensor.array.astype(numpy.uint32) << 16).view(numpy.float32)
    return tensor.array


def to_bfloat16(values):
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32).astype(numpy.uint64)
    return Tensor(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16), "bfloat16")


def cast(node, x):
    code = node.attributes["to"]
    if code == 16:
        return to_bfloat16(widen(x))
    name = {1: "float", 7: "int64", 10: "float16", 11: "double"}[code]
    return Tensor(numpy.asarray(widen(x)).astype(NUMPY[name]), name)


def slice_(node, x, starts, ends, axes):
    index = [slice(None)] * x.array.ndim
    for start, end, axis in zip(starts.array, ends.array, axes.array):
        index[axis] = slice(int(start), int(end))
    return Tensor(numpy.ascontiguousarray(x.array[tuple(index)]), x.dtype)


def sum_to(values, x):
    """What was broadcast from x's shape, summed."""
    values = values.sum(axis=tuple(range(values.ndim - x.array.ndim)))
    axes = tuple(i for i, size in enumerate(x.shape) if size == 1 and values.shape[i] != 1)
    return Tensor(values.sum(axis=axes, keepdims=True).astype(x.array.dtype), x.dtype)


OPERATORS = {
    "gradient.Mul": lambda node, a, b, dy: (sum_to(dy.array * b.array, a), sum_to(dy.array * a.array, b)),
    "gradient.Relu": lambda node, x, dy: Tensor(numpy.where(x.array > 0, dy.array, 0).astype(dy.array.dtype), x.dtype),
    "gradient.MatMul": lambda node, a, b, dy: (Tensor(dy.array @ b.array.T, a.dtype), Tensor(a.array.T @ dy.array, b.dtype)),
    "Add": lambda node, a, b: Tensor(numpy.asarray(a.array + b.array), a.dtype),
    "Mul": lambda node, a, b: Tensor(numpy.asarray(a.array * b.array), a.dtype),
    "MatMul": lambda node, a, b: Tensor(numpy.asarray(a.array @ b.array), a.dtype),
    "Relu": lambda node, x: Tensor(numpy.maximum(x.array, 0), x.dtype),
    "LeakyRelu": lambda node, x: Tensor(numpy.where(x.array < 0, x.array * numpy.float32(node.attributes.get("alpha", 0.01)), x.array)),
    "TestTwice": lambda node, x: Tensor(numpy.asarray(x.array * 2), x.dtype),  # of no meta-operator
    "Identity": lambda node, x: x,
    "Reshape": lambda node, x, shape: Tensor(x.array.reshape(tuple(int(size) for size in shape.array)), x.dtype),
    "Shape": lambda node, x: Tensor(numpy.array(x.shape, numpy.int64)),
    "Concat": lambda node, *parts: Tensor(numpy.concatenate([part.array for part in parts], node.attributes["axis"]), parts[0].dtype),
    "Cast": cast, "Slice": slice_,
}


def name_of(node):
    return ("gradient." if node.domain == "opdiff.gradient" else "") + node.op


class Raw(Exception):
    """Leaves the loop to send something else than a reply."""


class TestBackend(Backend):
    def __init__(self):
        self.mode = "good"
        self.has_run = False

    def hello(self, options):
        self.mode = options.get("mode", "good")
        if self.mode not in MODES:
            raise ValueError(f"mode={self.mode} is none of {', '.join(MODES)}")
        print("hello from the test worker")
        if self.mode == "hello-error":
            raise RuntimeError("libmissing.so: cannot open shared object file")
        if self.mode == "hello-crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        return {"name": "test", "version": "1", "operators": sorted(OPERATORS), "dtypes": opdiff_worker.ALL_DTYPES + ["float4e2m1"]}

    def prepare(self, graph, model, isolated, profile):
        for node in graph.nodes:
            if name_of(node) not in OPERATORS and not isolated:
                raise Unsupported(f"node '{node.id}': operator {node.op}")
        return graph, isolated

    def run(self, state, inputs):
        graph, isolated = state
        getattr(self, "before_" + self.mode.replace("-", "_"), lambda: None)()
        values = {**graph.initialisers, **inputs}
        failures = {}
        for node in graph.nodes:
            try:
                if name_of(node) not in OPERATORS:
                    raise Unsupported(f"operator {node.op}")
                results = OPERATORS[name_of(node)](node, *[values[name] for name in node.inputs])
                values.update(zip(node.outputs, results if isinstance(results, tuple) else (results,)))
            except Exception as error:
                if not isolated:
                    raise
                failures[node.id] = ("unsupported" if isinstance(error, Unsupported) else "error", str(error))
        outputs = {item["name"]: values[item["name"]] for item in graph.outputs if item["name"] in values}
        if self.mode == "missing":
            outputs.popitem()
        if self.mode == "wrong-name":
            outputs["nobody asked"] = Tensor(numpy.zeros(1, numpy.float32))
        return Result(outputs, failures)

    def node_times(self, state):
        return {node.id: 0.25 for node in state[0].nodes}

    def kernels(self, state):
        if self.mode == "no-kernels" or (self.mode == "late-kernels" and not self.has_run):
            return None
        return [("numpy." + node.op, [node.id]) for node in state[0].nodes] + [("copy", [])]

    def before_late_kernels(self):
        self.has_run = True

    def before_odd_kernels(self):
        raise Raw(reply('"outcome":"ok","outputs":[],"kernels":[{"kernel":"fused","nodes":["nobody"]}]'))

    def before_hang(self):
        print("hanging")
        time.sleep(3600)

    def before_slow(self):
        time.sleep(0.02)

    def before_crash(self):
        print("about to fall")
        os.kill(os.getpid(), signal.SIGSEGV)

    def before_exit(self):
        os._exit(7)

    def before_close(self):
        os.close(3)
        time.sleep(3600)

    def before_print(self):
        print("noise " * 20000)
        os.write(1, b"\xff\xfe raw bytes\n" * 1000)
        os.system("echo from a child")

    def before_error(self):
        raise RuntimeError("kernel says no:\nline two \x07")

    def before_memory_error(self):
        raise MemoryError("Unable to allocate 1 TiB")

    def before_memory(self):
        self.hoard = [numpy.ones(8 << 20) for _ in range(16)]  # 1 GiB
        time.sleep(3600)

    def before_child(self):
        """Leaves children behind, one of which holds every descriptor and does not care for the worker's end."""
        for _ in range(3):
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], close_fds=False)
        os.kill(os.getpid(), signal.SIGSEGV)

    def before_temporary(self):
        import tempfile
        handle, path = tempfile.mkstemp()
        os.write(handle, b"left behind")
        os.kill(os.getpid(), signal.SIGKILL)

    def before_garbage(self):
        raise Raw(frame(b"this is no JSON"))

    def before_binary(self):
        raise Raw(frame(bytes(range(256))))

    def before_oversize(self):
        raise Raw(struct.pack("<I", 0xFFFFFFFF) + b"x" * 100)

    def before_short(self):
        raise Raw(struct.pack("<I", 1000) + b"{", "exit")

    def before_deep(self):
        raise Raw(frame(b"[" * 1_000_000))

    def before_wrong_id(self):
        raise Raw(frame(b'{"protocol":1,"id":999999,"outcome":"ok","outputs":[]}'))

    def before_babble(self):
        raise Raw(frame(b'{"protocol":1,"id":999999,"outcome":"ok","outputs":[]}') * 50)

    def before_unknown_outcome(self):
        raise Raw(reply('"outcome":"splendid"'))

    def before_wrong_dtype_name(self):
        raise Raw(output('"dtype":"float7","shape":[1],"offset":0'))

    def before_outside(self):
        raise Raw(output('"dtype":"float","shape":[1],"offset":1048576'))

    def before_huge_shape(self):
        raise Raw(output('"dtype":"float","shape":[1152921504606846976],"offset":0'))

    def before_negative_shape(self):
        raise Raw(output('"dtype":"float","shape":[-1],"offset":0'))

    def before_sparse(self):
        descriptor = os.memfd_create("sparse")
        os.ftruncate(descriptor, 1 << 40)
        raise Raw(output('"dtype":"float","shape":[4194304],"offset":0'), [descriptor])

    def before_two_descriptors(self):
        raise Raw(output('"dtype":"float","shape":[1],"offset":0'), [os.memfd_create("one"), os.memfd_create("two")])


def frame(body):
    return struct.pack("<I", len(body)) + body


def reply(fields):
    return frame(('{"protocol":1,"id":REQUEST,' + fields + "}").encode())


def output(fields):
    return reply('"outcome":"ok","outputs":[{"name":"y",' + fields + "}]")


class RawLoop(opdiff_worker._Loop):
    """A loop that can be made to send anything."""

    def answer(self, request, arena):
        try:
            return super().answer(request, arena)
        except Raw as raw:
            body = raw.args[0]
            if b"REQUEST" in body:
                body = body[4:].replace(b"REQUEST", str(request["id"]).encode())
                body = frame(body)
            descriptors = raw.args[1] if len(raw.args) > 1 else None
            with socket.socket(fileno=os.dup(3)) as connection:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if isinstance(descriptors, list) else []
                connection.sendmsg([body], ancillary)
            if descriptors == "exit":
                os._exit(0)
            time.sleep(3600)


if __name__ == "__main__":
    opdiff_worker._Loop = RawLoop
    serve(TestBackend())
