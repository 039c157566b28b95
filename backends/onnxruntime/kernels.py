"""Which of the graph's nodes the nodes of onnxruntime's optimised graph stand for, told from the names of tensors and nodes.

The optimiser keeps the name of a tensor that it still computes. Where it does not, it keeps the node's name, or derives
the new one from it. What is between the tensors that a kernel reads and those that it makes is what it has absorbed.
"""

# They only move or reinterpret data: onnxruntime puts them where a layout, a type or a shape must be met.
MOVING = {"ReorderInput", "ReorderOutput", "Transpose", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}
BLOCKED_SUFFIX = "_nchwc"  # of a node that is made anew for the blocked layout, behind the name of its output
CAST_PREFIX = "InsertedPrecisionFreeCast_"  # of a tensor that is computed in float instead of float16


def name_of(node):
    """"FusedConv", "Relu", "nchwc.Conv"."""
    layout = node.domain.rpartition(".")[2]
    return node.op if node.domain in ("", "ai.onnx", "com.microsoft") else f"{layout}.{node.op}"


def _plain(value):
    """An attribute's value as something that can be compared and hashed."""
    if hasattr(value, "array"):
        return value.dtype, value.shape, value.array.tobytes()
    return tuple(value) if isinstance(value, list) else value


class Kernel:
    def __init__(self, node):
        self.node = node
        self.own = set()  # indices of the graph's nodes


class Mapping:
    """`nodes`, `constants` (names of initialisers) and `outputs` are the graph's; `executed` are OnnxNodes, in the
    order in which they are executed."""

    def __init__(self, nodes, constants, outputs, executed):
        self.nodes, self.outputs = nodes, set(outputs)
        self.producer = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
        self.alias = {}  # from a tensor of a new name, or a second of the same value, to that of the graph
        self.known = {name for node in nodes for name in [*node.inputs, *node.outputs]}
        self.readers = {}
        self.constants = set(constants)
        self.foldable, self.repeated = set(), set()
        self._read_graph()
        self.kernels = [Kernel(node) for node in executed]
        self.taken = {}  # from a node's index to its kernel
        self._take_same()
        self._follow_moves()
        self._take_outputs()
        for kernel in self.kernels:
            self._absorb(kernel)
        self._return_moved()

    def _read_graph(self):
        """Finds out who reads what, what is known before the first run, and what is computed twice."""
        seen = {}
        for i, node in enumerate(self.nodes):
            inputs = [self._named(name) for name in node.inputs]
            for name in inputs:
                self.readers.setdefault(name, set()).add(i)
            if node.op == "Shape" or all(not name or name in self.constants for name in inputs):
                self.foldable.add(i)
                self.constants.update(node.outputs)
            attributes = tuple((name, _plain(value)) for name, value in sorted(node.attributes.items()))
            first = seen.setdefault((node.op, node.domain, tuple(inputs), attributes), node)
            if first is not node:
                self.repeated.add(i)
                self.alias.update(zip(node.outputs, first.outputs))

    def result(self):
        return [(name_of(kernel.node), [self.nodes[i].id for i in sorted(kernel.own)]) for kernel in self.kernels]

    def _take(self, kernel, index):
        if index is not None and index not in self.taken:
            self.taken[index] = kernel
            kernel.own.add(index)

    def _named(self, name):
        """The name that the graph has for a tensor, where it has one."""
        if name not in self.known and name.startswith(CAST_PREFIX):
            name = name[len(CAST_PREFIX):]
        return self.alias.get(name, name)

    def _take_same(self):
        """The same operator under its tensor's or its own name, or under a name made from one of these."""
        for kernel in self.kernels:
            for name in kernel.node.outputs:
                index = self.producer.get(name)
                if index is not None and (self.nodes[index].op == kernel.node.op or
                                          {self.nodes[index].op, kernel.node.op} <= MOVING - {"Identity"}):
                    self._take(kernel, index)
        by_id = {node.id: i for i, node in enumerate(self.nodes)}
        for kernel in self.kernels:
            if kernel.own:
                continue
            name = kernel.node.name
            index = by_id.get(name)
            if index is not None and self.nodes[index].op != kernel.node.op:
                index = None
            if index is None:
                index = by_id.get(name.rstrip("/").rpartition("/")[0])  # "product/MatMulAddFusion/"
            if index is None:
                index = self.producer.get(self._named(name.rpartition(BLOCKED_SUFFIX)[0]))
            self._take(kernel, index)

    def _moves(self, kernel):
        return not kernel.own and kernel.node.op in MOVING

    def _is_new(self, name):
        return self._named(name) not in self.known

    def _follow_moves(self):
        for kernel in self.kernels:
            if self._moves(kernel) and self._is_new(kernel.node.outputs[0]):
                self.alias[kernel.node.outputs[0]] = self._named(kernel.node.inputs[0])

    def _take_outputs(self):
        """Against the order of execution: what a kernel makes is also known by those that read it."""
        for kernel in reversed(self.kernels):
            if self._moves(kernel):
                if self._is_new(kernel.node.inputs[0]):
                    self.alias[kernel.node.inputs[0]] = self._named(kernel.node.outputs[0])
                continue
            for name in kernel.node.outputs:
                self._take(kernel, self.producer.get(self._named(name)))
            origin = self._origin(kernel)
            for name, original in zip(kernel.node.inputs, origin.inputs if origin else ()):
                if name and original and self._is_new(name):
                    self.alias.setdefault(name, self._named(original))

    def _origin(self, kernel):
        """The node of the kernel's own operator among those that it computes."""
        op = kernel.node.op.removeprefix("Fused")
        reached = sorted(kernel.own)
        for index in reached:
            if self.nodes[index].op == op:
                return self.nodes[index]
            for name in map(self._named, self.nodes[index].inputs):
                behind = self.producer.get(name)
                if behind is not None and self.taken.get(behind, kernel) is kernel and behind not in reached:
                    reached.append(behind)
        return None

    def _absorb(self, kernel):
        """Takes the nodes that nobody but the kernel's own nodes reads and whose inputs the kernel has."""
        has = {self._named(name) for name in kernel.node.inputs} | self.constants
        inside, open_nodes = set(), list(kernel.own)
        while open_nodes:
            for name in map(self._named, self.nodes[open_nodes.pop()].inputs):
                index = self.producer.get(name)
                if name not in has and index is not None and index not in self.taken and index not in inside:
                    inside.add(index)
                    open_nodes.append(index)
        while True:
            all_own = inside | kernel.own
            stay = {index for index in inside if self._is_within(self.nodes[index], has, all_own)}
            if stay == inside:
                break
            inside = stay
        for index in inside:
            self._take(kernel, index)

    def _is_within(self, node, has, own):
        for name in map(self._named, node.inputs):
            if name and name not in has and self.producer.get(name) not in own:
                return False
        readers = set().union(*(self.readers.get(name, ()) for name in node.outputs))
        gone = self.repeated - self.taken.keys()
        return readers - gone <= own and self.outputs.isdisjoint(node.outputs)

    def _return_moved(self):
        """A data movement that was only moved past a kernel is not absorbed by it."""
        makers = {name: kernel for kernel in self.kernels for name in kernel.node.outputs}
        readers = {name: kernel for kernel in self.kernels for name in kernel.node.inputs}
        for kernel in self.kernels:
            if not self._moves(kernel):
                continue
            for other in (makers.get(kernel.node.inputs[0]), readers.get(kernel.node.outputs[0])):
                moved = [i for i in sorted(other.own) if self.nodes[i].op == kernel.node.op] if other else []
                if moved and len(other.own) > 1 and not kernel.own:
                    other.own.remove(moved[0])
                    kernel.own.add(moved[0])
