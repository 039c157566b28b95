"""The torch worker: maps each node to a native call (bindings.py), eagerly or as one compiled function."""
import itertools
import os
import time

import torch

from bindings import BINDINGS, STATIC_INPUTS, TORCH, Call, to_torch
from opdiff_worker import Backend, Result, Tensor, Unsupported, check_options, instruction_set, serve

NAMES = {kind: name for name, kind in TORCH.items()}
GRADIENT_DOMAIN = "opdiff.gradient"
OPTIONS = {"compile": ("inductor",), "mkldnn": ("0", "1"), "matmul": ("highest", "high", "medium")}


def from_torch(value):
    value = value.detach().contiguous()
    if value.dtype == torch.bfloat16:
        return Tensor(value.view(torch.int16).numpy().view("uint16"), "bfloat16")
    if value.dtype not in NAMES:
        raise Unsupported(f"a result of type {value.dtype}")
    return Tensor(value.numpy(), NAMES[value.dtype])


def is_unsupported(error):
    """torch says "not implemented for 'Half'" in a RuntimeError; a compiler wraps what was raised inside."""
    text = str(error)
    return isinstance(error, (Unsupported, NotImplementedError)) or "not implemented for" in text or \
        "opdiff_worker.Unsupported" in text or "Unsupported(" in text


class Step:
    """One node: its binding, and its inputs as names of values or as Python numbers."""

    def __init__(self, node, opset, constants):
        self.id = node.id
        self.outputs = node.outputs
        if node.domain not in ("", "ai.onnx") or node.op not in BINDINGS:
            raise Unsupported(f"operator {node.domain + '.' if node.domain else ''}{node.op}")
        self.function = BINDINGS[node.op]
        self.call = Call(node, opset)
        static = STATIC_INPUTS.get(node.op, ())
        inputs = list(node.inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        self.inputs = [(None, None) if not name else
                       (None, constants[name].tolist()) if i in static and name in constants else (name, None)
                       for i, name in enumerate(inputs)]

    def __call__(self, values):
        arguments = [number if name is None else values[name] for name, number in self.inputs]
        results = self.function(self.call, *arguments)
        if not isinstance(results, tuple):
            results = (results,)
        for name, result in zip(self.outputs, results):
            if name:
                values[name] = result


class GradientStep(Step):
    """A gradient node: the operator's own binding, differentiated by torch's autograd. Its inputs are the operator's,
    then one cotangent for each of its outputs; its outputs are the gradients of the operator's inputs."""

    def __init__(self, node, opset, constants):
        attributes = dict(node.attributes)
        count = attributes.pop("cotangents", 1)
        self.cotangents = node.inputs[len(node.inputs) - count:]
        forward = Forward(node, attributes, node.inputs[:len(node.inputs) - count], count)
        super().__init__(forward, opset, constants)
        self.outputs = node.outputs

    def arguments(self, values):
        """What the operator is called with, every tensor a leaf of its own, and {gradient's name: leaf}."""
        arguments, wanted = [], {}
        for (name, number), gradient in itertools.zip_longest(self.inputs, self.outputs[:len(self.inputs)]):
            if name is not None:
                number = values[name].detach()
                if gradient:
                    wanted[gradient] = number.requires_grad_(True)
            arguments.append(number)
        return arguments, wanted

    def __call__(self, values):
        with torch.enable_grad():
            arguments, wanted = self.arguments(values)
            results = self.function(self.call, *arguments)
            results = results if isinstance(results, tuple) else (results,)
            given = [(y, values[name]) for y, name in zip(results, self.cotangents) if name]
            gradients = torch.autograd.grad([y for y, _ in given], list(wanted.values()), [dy for _, dy in given],
                                            allow_unused=True)
        for (name, leaf), gradient in zip(wanted.items(), gradients):
            values[name] = torch.zeros_like(leaf) if gradient is None else gradient


class Forward:
    """The operator's node inside a gradient node."""

    def __init__(self, node, attributes, inputs, outputs):
        self.id, self.op, self.domain = node.id, node.op, ""
        self.attributes, self.inputs = attributes, inputs
        self.outputs = [f"y{i}" for i in range(outputs)]


def make_step(node, opset, constants):
    return (GradientStep if node.domain == GRADIENT_DOMAIN else Step)(node, opset, constants)


class Network(torch.nn.Module):
    """Steps over named values; weights are buffers."""

    def __init__(self, steps, weights, inputs, outputs):
        super().__init__()
        self.steps, self.input_names, self.output_names = steps, inputs, outputs
        self.weight_names = list(weights)
        for i, name in enumerate(self.weight_names):
            self.register_buffer(f"weight{i}", weights[name])

    def forward(self, *inputs):
        values = {name: getattr(self, f"weight{i}") for i, name in enumerate(self.weight_names)}
        values.update(zip(self.input_names, inputs))
        for step in self.steps:
            step(values)
        return [values[name] for name in self.output_names]


class State:
    def __init__(self):
        self.steps = []
        self.weights = {}
        self.failures = {}
        self.isolated = self.profile = False
        self.input_names = self.output_names = ()
        self.networks = None  # compiled: [(step ids, Network, its output names)]
        self.times = {}


class Torch(Backend):
    def __init__(self):
        self.compile = None

    def hello(self, options):
        check_options(options, OPTIONS)
        threads = int(os.environ.get("OPDIFF_THREADS", "0"))
        if threads:
            torch.set_num_threads(threads)
        self.compile = options.get("compile")
        if "mkldnn" in options:
            torch.backends.mkldnn.set_flags(options["mkldnn"] == "1")
        if "matmul" in options:
            torch.set_float32_matmul_precision(options["matmul"])
        build = " ".join(torch.__config__.show().split("Build settings")[0].split())
        capability = torch.backends.cpu.get_cpu_capability()
        return {"name": "torch", "version": torch.__version__.split("+")[0], "build": f"{torch.__version__}: {build}",
                "isa": f"{capability} of {instruction_set()}", "operators": sorted(BINDINGS), "dtypes": list(TORCH),
                "importing": False, "gradient": True}

    def prepare(self, graph, model, isolated, profile):
        state = State()
        state.isolated, state.profile = isolated, profile
        state.input_names = [item["name"] for item in graph.inputs]
        state.output_names = [item["name"] for item in graph.outputs]
        state.weights = {name: to_torch(tensor) for name, tensor in graph.initialisers.items()}
        constants = dict(state.weights)
        for node in graph.nodes:
            try:
                step = make_step(node, graph.opset, constants)
                if node.op == "Constant":
                    constants[node.outputs[0]] = step.function(step.call)
                state.steps.append(step)
            except Unsupported as error:
                if not isolated:
                    raise Unsupported(f"node '{node.id}': {error}")
                state.failures[node.id] = ("unsupported", str(error))
        if self.compile and state.steps:
            state.networks = [self._network(state, state.steps)]
        return state

    def _network(self, state, steps):
        made = {name for step in steps for name in step.outputs}
        used = {name for step in steps for name, _ in step.inputs if name}
        outputs = [name for name in state.output_names if name in made or not state.isolated]
        inputs = [name for name in state.input_names if name in used or name in outputs]
        weights = {name: tensor for name, tensor in state.weights.items() if name in used or name in outputs}
        network = Network(steps, weights, inputs, outputs)
        return steps, torch.compile(network, backend=self.compile, dynamic=False), inputs, outputs

    def run(self, state, inputs):
        values = {name: to_torch(tensor) for name, tensor in inputs.items()}
        missing = [name for name in state.input_names if name not in values]
        if missing:
            raise ValueError(f"input '{missing[0]}' is missing")
        failures = dict(state.failures)
        if state.networks is not None:
            outputs = self._run_compiled(state, values, failures)
        else:
            outputs = self._run_eagerly(state, values, failures)
        return Result({name: from_torch(value) for name, value in outputs.items()}, failures)

    @staticmethod
    def _failure(error):
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return "out-of-memory", str(error)
        return "unsupported" if is_unsupported(error) else "error", f"{type(error).__name__}: {error}"

    def _run_eagerly(self, state, values, failures):
        values.update(state.weights)
        with torch.no_grad():
            for step in state.steps:
                start = time.perf_counter()
                try:
                    step(values)
                except Exception as error:
                    if not state.isolated:
                        raise self._named(step, error)
                    failures[step.id] = self._failure(error)
                if state.profile:
                    state.times.setdefault(step.id, []).append((time.perf_counter() - start) * 1e3)
        return {name: values[name] for name in state.output_names if name in values or not failures}

    @staticmethod
    def _named(step, error):
        kind, reason = Torch._failure(error)
        wrapper = {"unsupported": Unsupported, "out-of-memory": MemoryError}.get(kind, RuntimeError)
        return wrapper(f"node '{step.id}': {reason}")

    def _run_compiled(self, state, values, failures):
        outputs = {}
        if state.isolated and len(state.networks) == 1 and len(state.steps) > 1:
            try:
                return self._call(state.networks[0], values)
            except Exception:  # find out whose fault it is
                state.networks = [self._network(state, [step]) for step in state.steps]
        for network in state.networks:
            try:
                outputs.update(self._call(network, values))
            except Exception as error:
                kind, reason = self._failure(error)
                if not state.isolated:
                    raise Unsupported(reason) if kind == "unsupported" else error
                failures[network[0][0].id] = (kind, reason)
        return outputs

    @staticmethod
    def _call(network, values):
        _, module, inputs, outputs = network
        with torch.no_grad():
            return dict(zip(outputs, module(*[values[name] for name in inputs])))

    def node_times(self, state):
        times, state.times = state.times, {}
        return {node: sorted(values)[len(values) // 2] for node, values in times.items()}


if __name__ == "__main__":
    serve(Torch())
