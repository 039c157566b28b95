"""The torch worker: maps each node to a native call (bindings.py), eagerly or as one compiled function."""
import os
import time
import types
from contextlib import nullcontext

import torch
import torch._dynamo

import inductor
import training
import updates
from bindings import BINDINGS, NUMBER_INPUTS, STATIC_INPUTS, TORCH, Call, is_number, to_torch
from opdiff_worker import Backend, Result, Tensor, Unsupported, check_options, instruction_set, serve

NAMES = {kind: name for name, kind in TORCH.items()}
torch._dynamo.config.fail_on_recompile_limit_hit = True  # what is not compiled must not pass for it
# After a graph break dynamo compiles the functions inside one by one: those that all nodes share, once a node.
torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1 << 20
DOMAINS = ("", "ai.onnx", "opdiff.training")
OPTIONS = {"compile": ("inductor",), "disable": None, "mkldnn": ("0", "1"), "matmul": ("highest", "high", "medium"),
           "optimizer": ("single", "foreach", "fused")}


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
        self.id, self.op = node.id, node.op
        self.outputs = node.outputs
        if node.domain not in DOMAINS or node.op not in BINDINGS:
            raise Unsupported(f"operator {node.domain + '.' if node.domain else ''}{node.op}")
        self.function = BINDINGS[node.op]
        self.call = Call(node, opset)
        static = STATIC_INPUTS.get(node.op, ())
        inputs = list(node.inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        numbers = {i for i, name in enumerate(inputs) if name in constants and
                   (i in static or is_number(self.call, constants[name]))}
        if node.op in NUMBER_INPUTS and len(numbers) == len(inputs):
            numbers = set()  # a call needs one tensor
        self.inputs = [(None, None) if not name else (None, constants[name].tolist()) if i in numbers else (name, None)
                       for i, name in enumerate(inputs)]

    def __call__(self, values):
        arguments = [number if name is None else values[name] for name, number in self.inputs]
        results = self.function(self.call, *arguments)
        if not isinstance(results, tuple):
            results = (results,)
        for name, result in zip(self.outputs, results):
            if name:
                values[name] = result


def make_step(node, opset, constants):
    if node.domain == training.DOMAIN:
        return training.GradientStep(node, Step(training.Forward(node), opset, constants))
    return Step(node, opset, constants)


class Network(torch.nn.Module):
    """Steps over named values as one function of `inputs`; weights are buffers. `marks`: whose operations are whose is
    to be known afterwards."""

    def __init__(self, steps, weights, inputs, outputs, marks):
        super().__init__()
        self.steps, self.input_names, self.output_names, self.marks = steps, inputs, outputs, marks
        self.weight_names = list(weights)
        for i, name in enumerate(self.weight_names):
            self.register_buffer(f"weight{i}", weights[name])

    def forward(self, *inputs):
        values = {name: getattr(self, f"weight{i}") for i, name in enumerate(self.weight_names)}
        values.update(zip(self.input_names, inputs))
        for step in self.steps:
            if self.marks:
                with inductor.marked(step.id):
                    step(values)
            else:
                step(values)
        return [values[name] for name in self.output_names]


def compiled(module, compiler):
    """torch keeps 8 compiled programs for one code object and runs what comes after eagerly: each module needs its own."""
    forward = type(module).forward
    own = types.FunctionType(forward.__code__.replace(), forward.__globals__, forward.__name__)
    module.forward = types.MethodType(own, module)
    return torch.compile(module, backend=compiler, dynamic=False)


class CompiledSteps:
    """Operators as one compiled function. `tracked`: names of weights that must stay inputs, being differentiated."""

    def __init__(self, compiler, steps, state, outputs, tracked=()):
        self.steps = steps
        made = {name for step in steps for name in step.outputs}
        used = sorted({name for step in steps for name, _ in step.inputs if name} - made)
        self.input_names = [name for name in used if name not in state.weights or name in tracked]
        self.output_names = [name for name in outputs if name in made]
        weights = {name: state.weights[name] for name in used if name not in self.input_names}
        self.module = compiled(Network(steps, weights, self.input_names, self.output_names, state.kernels is not None),
                               compiler)

    def __call__(self, values):
        results = self.module(*[values[name] for name in self.input_names])
        return dict(zip(self.output_names, results))


class CompiledGradients:
    """Gradient nodes that do not depend on one another: their operators as one compiled function, one backward pass."""

    def __init__(self, compiler, steps, state):
        self.steps = steps
        self.module = compiled(training.Forwards(steps, inductor.marked if state.kernels is not None else None), compiler)

    def __call__(self, values):
        return training.run_compiled(self.module, self.steps, values)


class State:
    def __init__(self):
        self.steps = []
        self.weights = {}
        self.failures = {}
        self.isolated = self.profile = False
        self.input_names = self.output_names = ()
        self.parts = None  # compiled: what is called in turn
        self.backward = None  # of a whole training graph: training.BackwardPass, before all steps
        self.times = {}
        self.kernels = None  # inductor.Kernels, where they are asked for and the graph is compiled
        self.order = {}  # of node ids, where kernels are asked for
        self.has_run = False


class Torch(Backend):
    def __init__(self):
        self.compile = None

    def hello(self, options):
        check_options(options, OPTIONS)
        threads = int(os.environ.get("OPDIFF_THREADS", "0"))
        if threads:
            torch.set_num_threads(threads)
        self.compile = options.get("compile")
        disabled = [name for name in options.get("disable", "").split("+") if name]
        unknown = [name for name in disabled if name not in inductor.PASSES]
        if unknown or disabled and not self.compile:
            raise ValueError(f"disable={'+'.join(unknown or disabled)}: " + (
                f"no such part of inductor; known: {' '.join(inductor.PASSES)}" if unknown else "needs compile=inductor"))
        if disabled:
            inductor.switch_off(disabled)
        updates.IMPLEMENTATION = options.get("optimizer", "single")
        if "mkldnn" in options:
            torch.backends.mkldnn.set_flags(options["mkldnn"] == "1")
        if "matmul" in options:
            torch.set_float32_matmul_precision(options["matmul"])
        build = " ".join(torch.__config__.show().split("Build settings")[0].split())
        capability = torch.backends.cpu.get_cpu_capability()
        return {"name": "torch", "version": torch.__version__.split("+")[0], "build": f"{torch.__version__}: {build}",
                "isa": f"{capability} of {instruction_set()}", "operators": sorted(BINDINGS), "dtypes": list(TORCH),
                "importing": False, "gradient": True, "passes": list(inductor.PASSES) if self.compile else []}

    def prepare(self, graph, model, isolated, profile):
        state = State()
        state.isolated, state.profile = isolated, profile
        if graph.kernels:
            state.order = {node.id: i for i, node in enumerate(graph.nodes)}
            state.kernels = inductor.Kernels() if self.compile else None
        state.input_names = [item["name"] for item in graph.inputs]
        state.output_names = [item["name"] for item in graph.outputs]
        state.weights = {name: to_torch(tensor) for name, tensor in graph.initialisers.items()}
        split = training.Split(graph) if graph.training else None
        tracked = split.gradients if split else ()  # an input of autograd is no constant
        constants = {name: weight for name, weight in state.weights.items() if name not in tracked}
        if split and split.native:
            before = [self._step(state, node, graph.opset, constants) for node in split.before]
            state.steps = [self._step(state, node, graph.opset, constants) for node in split.after]
            forward = None
            if self.compile:
                forward = CompiledSteps(self.compile, before, state, split.wanted, split.gradients)
            state.backward = training.BackwardPass(split, before, forward)
        else:
            state.steps = [self._step(state, node, graph.opset, constants) for node in graph.nodes]
        state.steps = [step for step in state.steps if step]
        state.steps = updates.Updates.of(state.steps, joined=not isolated and not profile)
        if self.compile:
            state.parts = self._parts(state)
        return state

    @staticmethod
    def _step(state, node, opset, constants):
        """None where an isolated node is unsupported."""
        try:
            step = make_step(node, opset, constants)
            if node.op == "Constant":
                constants[node.outputs[0]] = step.function(step.call)
            return step
        except Unsupported as error:
            if not state.isolated:
                raise Unsupported(f"node '{node.id}': {error}")
            state.failures[node.id] = ("unsupported", str(error))

    def _parts(self, state):
        """Runs of operators, each one function; gradient nodes, which read one another's results, one by one between, and
        updates, which stay eager."""
        gradients = [step for step in state.steps if isinstance(step, training.GradientStep)]
        eager = [step for step in state.steps if isinstance(step, updates.Updates)]
        if state.isolated:
            others = [step for step in state.steps if step not in gradients and step not in eager]
            parts = [CompiledSteps(self.compile, others, state, state.output_names)] if others else []
            return parts + ([CompiledGradients(self.compile, gradients, state)] if gradients else []) + eager
        parts, run, asked = [], [], set(state.output_names)
        for step in [*reversed(state.steps), None]:
            if step is not None and step not in gradients and step not in eager:
                run.insert(0, step)
                continue
            if run:
                parts.insert(0, CompiledSteps(self.compile, run, state, sorted(asked)))
                asked |= {name for own in run for name, _ in own.inputs if name}
                run = []
            if step is not None:
                parts.insert(0, step if step in eager else CompiledGradients(self.compile, [step], state))
                asked |= {name for name, _ in step.inputs if name}
        return parts

    def run(self, state, inputs):
        recording = state.kernels.recording() if state.kernels is not None and not state.has_run else nullcontext()
        with recording:
            result = self._run(state, inputs)
        state.has_run = True
        return result

    def kernels(self, state):
        """Inductor generates them in the first run. Eagerly each node is a kernel of its own."""
        if state.kernels is None:
            return self._eager_kernels((state.backward.steps if state.backward else []) + state.steps)
        if not state.has_run:
            return None
        compiled = [(name, sorted(nodes, key=state.order.get)) for name, nodes in state.kernels]
        return compiled + self._eager_kernels(step for step in state.steps if isinstance(step, updates.Updates))

    @staticmethod
    def _eager_kernels(steps):
        return [(step.op, [one.id for one in step.steps] if isinstance(step, updates.Updates) else [step.id])
                for step in steps]

    def _run(self, state, inputs):
        values = {name: to_torch(tensor) for name, tensor in inputs.items()}
        missing = [name for name in state.input_names if name not in values]
        if missing:
            raise ValueError(f"input '{missing[0]}' is missing")
        values.update(state.weights)
        failures = dict(state.failures)
        with torch.no_grad():
            if state.backward is not None:
                try:
                    state.backward(values, lambda step: self._run_step(state, step, values, failures))
                except (RuntimeError, NotImplementedError) as error:
                    raise self._named("the backward pass", error)
            if state.parts is not None:
                self._run_compiled(state, values, failures)
            else:
                for step in state.steps:
                    self._run_step(state, step, values, failures)
        outputs = [name for name in state.output_names if name in values or not failures]
        return Result({name: from_torch(values[name]) for name in outputs}, failures)

    @staticmethod
    def _failure(error):
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return "out-of-memory", str(error)
        return "unsupported" if is_unsupported(error) else "error", f"{type(error).__name__}: {error}"

    @staticmethod
    def _named(place, error):
        kind, reason = Torch._failure(error)
        wrapper = {"unsupported": Unsupported, "out-of-memory": MemoryError}.get(kind, RuntimeError)
        return wrapper(f"{place}: {reason}")

    def _run_step(self, state, step, values, failures):
        start = time.perf_counter()
        try:
            start = step(values) or start  # a gradient says when its backward pass began
        except Exception as error:
            if not state.isolated:
                raise self._named(f"node '{step.id}'", error)
            failures[step.id] = self._failure(error)
        if state.profile:
            state.times.setdefault(step.id, []).append((time.perf_counter() - start) * 1e3)

    def _run_compiled(self, state, values, failures):
        parts = []
        for part in state.parts:
            if state.isolated and len(part.steps) > 1:
                try:
                    values.update(part(values))
                    parts.append(part)
                    continue
                except Exception:  # find out whose fault it is
                    if state.kernels is not None:
                        state.kernels.forget()
                    single = [CompiledGradients(self.compile, [step], state) if isinstance(step, training.GradientStep) else
                              CompiledSteps(self.compile, [step], state, state.output_names) for step in part.steps]
            else:
                single = [part]
            parts.extend(single)
            for one in single:
                try:
                    values.update(one(values) or ())  # updates write theirs themselves
                except Exception as error:
                    kind, reason = self._failure(error)
                    if not state.isolated:
                        raise Unsupported(reason) if kind == "unsupported" else error
                    failures[one.steps[0].id] = (kind, reason)
        state.parts = parts

    def node_times(self, state):
        times, state.times = state.times, {}
        return {node: sorted(values)[len(values) // 2] for node, values in times.items()}


if __name__ == "__main__":
    serve(Torch())
