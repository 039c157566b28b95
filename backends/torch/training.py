"""Gradients by torch's autograd: of one operator (a node of domain opdiff.gradient), and of a whole training graph."""
import itertools
import time

import torch

from opdiff_worker import Unsupported

DOMAIN = "opdiff.gradient"


class Forward:
    """The operator's node inside a gradient node."""

    is_differentiated = True

    def __init__(self, node):
        count = node.attributes.get("cotangents", 1)
        self.id, self.op, self.domain = node.id, node.op, ""
        self.attributes = {name: value for name, value in node.attributes.items() if name != "cotangents"}
        self.inputs = node.inputs[:len(node.inputs) - count]
        self.cotangents = node.inputs[len(node.inputs) - count:]
        # An output without a cotangent is one that nobody asked for.
        self.outputs = [f"y{i}" if name else "" for i, name in enumerate(self.cotangents)]
        while self.outputs and not self.outputs[-1]:
            self.outputs.pop()


class Tape:
    """Outputs with their cotangents, and the leaves whose gradients are wanted, by the gradients' names."""

    def __init__(self):
        self.outputs, self.cotangents, self.leaves = [], [], {}

    def add(self, output, cotangent):
        if output.requires_grad:  # else it depends on no leaf
            self.outputs.append(output)
            self.cotangents.append(cotangent)

    def play(self):
        """Gradients by name; where nothing depends on a leaf they are zero."""
        if not self.outputs:
            return {name: torch.zeros_like(leaf) for name, leaf in self.leaves.items()}
        gradients = torch.autograd.grad(self.outputs, list(self.leaves.values()), self.cotangents, allow_unused=True)
        return {name: torch.zeros_like(leaf) if gradient is None else gradient
                for (name, leaf), gradient in zip(self.leaves.items(), gradients)}


class GradientStep:
    """A gradient node. Its inputs are the operator's, then one cotangent for each of its outputs; its outputs are the
    gradients of the operator's inputs. `forward` is the operator's own step (worker.Step) of a Forward."""

    def __init__(self, node, forward):
        self.id, self.op = node.id, "gradient." + node.op
        self.forward = forward
        self.outputs = node.outputs
        self.cotangents = node.inputs[len(node.inputs) - node.attributes.get("cotangents", 1):]
        self.inputs = forward.inputs + [(name, None) for name in self.cotangents]

    def leaves(self, values):
        """The operator's tensors, each a leaf of its own, as (value, name of the gradient that is wanted or "")."""
        result = []
        for (name, _), gradient in itertools.zip_longest(self.forward.inputs, self.outputs[:len(self.forward.inputs)]):
            if name is not None:
                result.append((values[name].detach().requires_grad_(bool(gradient)), gradient or ""))
        return result

    def compute(self, leaves):
        """The operator's outputs that have a cotangent."""
        leaves = iter(leaves)
        arguments = [number if name is None else next(leaves) for name, number in self.forward.inputs]
        results = self.forward.function(self.forward.call, *arguments)
        results = results if isinstance(results, tuple) else (results,)
        return [result for result, cotangent in zip(results, self.cotangents) if cotangent]

    def given(self, values):
        return [values[name] for name in self.cotangents if name]

    def __call__(self, values):
        """Returns when the backward pass began: the forward pass is no part of a gradient's time."""
        tape = Tape()
        leaves = self.leaves(values)
        tape.leaves = {gradient: leaf for leaf, gradient in leaves if gradient}
        with torch.enable_grad():
            for output, cotangent in zip(self.compute([leaf for leaf, _ in leaves]), self.given(values)):
                tape.add(output, cotangent)
        start = time.perf_counter()
        values.update(tape.play())
        return start


class Forwards(torch.nn.Module):
    """The operators of many gradient nodes as one function of their leaves: what is compiled of isolated nodes. `marked`:
    a context of a node's id in which its operator is traced, or None."""

    def __init__(self, steps, marked=None):
        super().__init__()
        self.steps, self.marked = steps, marked

    def forward(self, leaves):
        if self.marked is None:
            return [step.compute(own) for step, own in zip(self.steps, leaves)]
        results = []
        for step, own in zip(self.steps, leaves):
            with self.marked(step.id):
                results.append(step.compute(own))
        return results


def run_compiled(module, steps, values):
    """All gradients of `steps` by one backward pass through `module`, compiled Forwards of them."""
    tape, leaves = Tape(), []
    for step in steps:
        own = step.leaves(values)
        leaves.append([leaf for leaf, _ in own])
        tape.leaves.update({gradient: leaf for leaf, gradient in own if gradient})
    with torch.enable_grad():
        for step, outputs in zip(steps, module(leaves)):
            for output, cotangent in zip(outputs, step.given(values)):
                tape.add(output, cotangent)
    return tape.play()


class Split:
    """A training graph's nodes: those that autograd differentiates, and those that take its gradients (the others it
    replaces). `native` is false where somebody asks for a tensor that only the graph's own backward nodes make."""

    def __init__(self, graph):
        training = graph.training
        self.gradients, self.cotangents = training.gradients, training.cotangents
        replaced = {name for node in graph.nodes if node.id in training.backward for name in node.outputs if name}
        late = replaced | set(self.gradients.values())
        self.before, self.after = [], []
        for node in graph.nodes:
            if node.id in training.backward:
                continue
            if late.isdisjoint(node.inputs):
                self.before.append(node)
            else:
                self.after.append(node)
                late.update(name for name in node.outputs if name)
        asked = {item["name"] for item in graph.outputs} | {name for node in self.after for name in node.inputs}
        made = {name for node in self.before for name in node.outputs if name}
        self.native = replaced & asked <= set(self.gradients.values())
        self.inner = made & set(self.gradients)
        # What the forward part hands over: seeds, and what the caller and the nodes after it read.
        self.wanted = sorted(made & (asked | set(self.cotangents) | set(self.cotangents.values())))


class BackwardPass:
    """A whole training graph up to its gradients: `steps`, then one call of autograd. `module`: the steps as one
    compiled function (worker.CompiledSteps), or None."""

    def __init__(self, split, steps, module=None):
        if module is not None and split.inner:
            raise Unsupported(f"the gradient of an inner tensor ('{min(split.inner)}') of a compiled graph")
        self.split, self.steps, self.module = split, steps, module

    def __call__(self, values, run_step):
        split = self.split
        for name in split.gradients:
            if name in values:
                values[name] = values[name].detach().requires_grad_(True)
        with torch.enable_grad():
            if self.module is not None:
                values.update(self.module(values))
            for step in self.steps if self.module is None else ():
                run_step(step)
                for name in split.inner.intersection(step.outputs):
                    # A tensor of its own, even where the node gives its input back.
                    values[name] = values[name].view_as(values[name]) if values[name].requires_grad else \
                        values[name].detach().requires_grad_(True)
        tape = Tape()
        tape.leaves = {gradient: values[name] for name, gradient in split.gradients.items()}
        for name, cotangent in split.cotangents.items():
            tape.add(values[name], values[cotangent].detach())
        gradients = tape.play()
        for name, value in values.items():
            values[name] = value.detach()
        values.update(gradients)
