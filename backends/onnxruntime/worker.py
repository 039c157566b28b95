"""The onnxruntime worker: imports the ONNX bytes; passes.py names the optimiser's passes."""
import ctypes
import json
import os
import re
import statistics
import tempfile

import numpy
import onnxruntime

from opdiff_worker import (ALL_DTYPES, NUMPY, Backend, Tensor, Unsupported, check_options, instruction_set,
                           memory_is_counted, serve)
from kernels import Mapping
from onnx_bytes import ir_version, nodes_of
from passes import PASSES

LEVELS = {"disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
          "layout": "ORT_ENABLE_LAYOUT", "all": "ORT_ENABLE_ALL"}
TYPES = {"tensor(double)": "double", "tensor(float)": "float", "tensor(float16)": "float16",
         "tensor(bfloat16)": "bfloat16", "tensor(int8)": "int8", "tensor(int16)": "int16", "tensor(int32)": "int32",
         "tensor(int64)": "int64", "tensor(uint8)": "uint8", "tensor(uint16)": "uint16", "tensor(uint32)": "uint32",
         "tensor(uint64)": "uint64", "tensor(bool)": "bool"}
BFLOAT16 = 16  # TensorProto.DataType
# What onnxruntime says of a model that it has no kernel or no schema for, as opposed to one that it gets wrong.
NOT_THERE = re.compile(r"NOT_IMPLEMENTED|NotImplemented|is not a registered function/op|No Op registered for|"
                       r"Could not find an implementation|is under development and support for this is limited|"
                       r"official released onnx opset", re.IGNORECASE)
TOO_NEW = re.compile(r"max supported IR version: (\d+)")


class State:
    def __init__(self, model, profile, graph):
        self.model = model
        self.profile = profile
        # Of a graph whose kernels are asked for: what Mapping needs of it, and the answer.
        self.described = graph.nodes, list(graph.initialisers), [item["name"] for item in graph.outputs]
        self.kernels_asked, self.kernels = graph.kernels, None
        self.nodes = {node.id: node.id for node in graph.nodes}
        # The optimiser names a node that it makes after an output of the old one ("y_nchwc") or after itself.
        for node in graph.nodes:
            for output in node.outputs:
                self.nodes.setdefault(output + "_nchwc", node.id)
        self.session = None
        self.input_types = {}
        self.outputs = []


class OnnxRuntime(Backend):
    def __init__(self):
        self.level = None
        self.threads = int(os.environ.get("OPDIFF_THREADS", "0"))
        self.disabled = []
        self.newest_ir = 127

    def hello(self, options):
        check_options(options, {"opt": LEVELS, "disable": None, "threads": None})
        self.level = options.get("opt")
        self.disabled = [name for name in options.get("disable", "").split("+") if name]
        unknown = [name for name in self.disabled if name not in PASSES]
        if unknown:
            raise ValueError(f"disable={'+'.join(unknown)}: no such pass; known: {' '.join(PASSES)}")
        if self.level == "layout" and not hasattr(onnxruntime.GraphOptimizationLevel, "ORT_ENABLE_LAYOUT"):
            raise ValueError(f"opt=layout: onnxruntime {onnxruntime.__version__} has no such level")
        self.threads = int(options.get("threads", self.threads))
        build = onnxruntime.get_build_info() if hasattr(onnxruntime, "get_build_info") else ""
        return {"name": "onnxruntime", "version": onnxruntime.__version__, "build": build, "isa": instruction_set(),
                "operators": ["*"], "dtypes": ALL_DTYPES, "importing": True, "passes": PASSES}

    def _session(self, state, profile_prefix=None):
        """With kernels asked for, the session writes its optimised graph down before it runs it."""
        if not state.kernels_asked or state.kernels is not None:
            return self._make_session(state.model, profile_prefix)
        with tempfile.TemporaryDirectory(prefix="opdiff-optimised-") as folder:
            path = os.path.join(folder, "model.onnx")
            session = self._make_session(state.model, profile_prefix, path)
            with open(path, "rb") as file:
                state.kernels = Mapping(*state.described, nodes_of(file.read())).result()
        return session

    def _make_session(self, model, profile_prefix=None, optimised_path=None):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        if memory_is_counted():
            options.enable_cpu_mem_arena = False
            options.enable_mem_pattern = False
        if self.level:
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[self.level])
        if optimised_path:
            options.optimized_model_filepath = optimised_path
            # Weights apart, so that a model of any size can be written.
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        if profile_prefix:
            options.enable_profiling = True
            options.profile_file_prefix = profile_prefix
        extra = {"disabled_optimizers": self.disabled} if self.disabled else {}
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], **extra)

    def _open(self, state, profile_prefix=None):
        """Makes the session; a model newer than this release's IR version is offered again as the newest it knows."""
        try:
            try:
                if ir_version(state.model) > self.newest_ir:
                    state.model = ir_version(state.model, self.newest_ir)
                state.session = self._session(state, profile_prefix)
            except Exception as error:
                limit = TOO_NEW.search(str(error))
                if not limit:
                    raise
                self.newest_ir = int(limit.group(1))
                state.model = ir_version(state.model, self.newest_ir)
                state.session = self._session(state, profile_prefix)
        except Exception as error:
            if NOT_THERE.search(str(error)) or type(error).__name__ == "NotImplemented":
                raise Unsupported(" ".join(str(error).split()))
            raise
        state.input_types = {item.name: TYPES.get(item.type) for item in state.session.get_inputs()}
        state.outputs = [(item.name, TYPES.get(item.type)) for item in state.session.get_outputs()]
        for name, kind in state.outputs:
            if kind is None:
                raise Unsupported(f"output '{name}' is no tensor of numbers")

    def prepare(self, graph, model, isolated, profile):
        if not model:
            raise Unsupported("onnxruntime reads ONNX bytes only")
        if 0 < ir_version(model) < 4:  # before IR 4 every initialiser had to be an input too
            model = ir_version(model, 4)
        state = State(model, profile, graph)
        if not profile:
            self._open(state)
        return state

    def run(self, state, inputs):
        if state.session is None:  # a profile ends with its session: one session for each profiled run()
            state.folder = tempfile.TemporaryDirectory(prefix="opdiff-profile-")
            self._open(state, os.path.join(state.folder.name, "profile"))
        inputs = {name: tensor for name, tensor in inputs.items() if name in state.input_types}
        names = [name for name, _ in state.outputs]
        try:
            if any(tensor.dtype == "bfloat16" for tensor in inputs.values()) or \
                    any(kind == "bfloat16" for _, kind in state.outputs):
                return self._run_values(state, inputs, names)
            arrays = state.session.run(names, {name: tensor.array for name, tensor in inputs.items()})
        except Exception as error:
            if NOT_THERE.search(str(error)):
                raise Unsupported(" ".join(str(error).split()))
            raise
        return {name: Tensor(numpy.asarray(array)) for name, array in zip(names, arrays)}

    @staticmethod
    def _run_values(state, inputs, names):
        make = onnxruntime.OrtValue
        feeds = {}
        for name, tensor in inputs.items():
            if tensor.dtype != "bfloat16":
                feeds[name] = make.ortvalue_from_numpy(tensor.array)
            elif hasattr(make, "ortvalue_from_numpy_with_onnx_type"):
                feeds[name] = make.ortvalue_from_numpy_with_onnx_type(
                    numpy.require(tensor.array, requirements="C"), BFLOAT16)  # not ascontiguousarray: it makes scalars 1-D
            else:
                raise Unsupported(f"onnxruntime {onnxruntime.__version__} cannot be fed bfloat16 from Python")
        results = {}
        for (name, kind), value in zip(state.outputs, state.session.run_with_ort_values(names, feeds)):
            if kind != "bfloat16":
                results[name] = Tensor(value.numpy())
                continue
            bits = numpy.empty(tuple(value.shape()), NUMPY[kind])
            ctypes.memmove(bits.ctypes.data, value.data_ptr(), bits.nbytes)
            results[name] = Tensor(bits, kind)
        return results

    def kernels(self, state):
        return state.kernels  # None before the first run of a profiled graph, whose session that run makes

    def node_times(self, state):
        if state.session is None:
            return {}
        path = state.session.end_profiling()
        state.session = None
        with open(path) as file:
            events = json.load(file)
        state.folder.cleanup()
        times = {}
        for event in events:
            name = event.get("name", "")
            if event.get("cat") != "Node" or not name.endswith("_kernel_time"):
                continue
            name = name[:-len("_kernel_time")]
            node = state.nodes.get(name) or state.nodes.get(name.rpartition("/")[0])  # "mm/MatMulAddFusion"
            if node:
                times.setdefault(node, []).append(event["dur"] / 1e3)
        return {node: statistics.median(values) for node, values in times.items()}

    def release(self, state):
        state.session = None


if __name__ == "__main__":
    serve(OnnxRuntime())
