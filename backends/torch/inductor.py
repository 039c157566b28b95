"""What of torch's inductor can be switched off part by part, and which kernels it makes of which nodes. Leans on internals
of torch 2.13: what another release lacks is an error once it is asked for."""
import contextlib
from unittest import mock

import torch
import torch._functorch.config
import torch._inductor.config
from torch.fx import traceback

MARK = "opdiff_node"  # in the metadata of a traced operation: the graph's nodes that it computes


def _without_attention():
    from torch._inductor.fx_passes import fuse_attention
    fuse_attention._sfdp_init = lambda *unused: None


def _without_patterns():
    """None of the rewrites by patterns but those of attention, which are registered later."""
    from torch._inductor.fx_passes import joint_graph, misc_patterns, pad_mm, post_grad
    for table in [joint_graph.early_patterns, *joint_graph.pass_patterns, *post_grad.pass_patterns]:
        table.patterns.clear()
    pad_mm._pad_mm_init = misc_patterns._misc_patterns_init = post_grad.lazy_init = lambda *unused: None


# Parts of inductor, none inside another: a function that takes one out, or settings that do.
PASSES = {
    "fuse_attention": _without_attention,
    "pattern_matcher": _without_patterns,
    "constant_folding": {"joint_graph_constant_folding": False},
    "index_propagation": {"constant_and_index_propagation": False},
    "layout_optimization": {"layout_optimization": False},
    "loop_fusion": {"max_fusion_size": 1, "cpp.max_horizontal_fusion_size": 1},
    "loop_ordering": {"loop_ordering_after_fusion": False},
    "pointwise_cat": {"max_pointwise_cat_inputs": 0},
    "unroll_reductions": {"unroll_reductions_threshold": 1},
    "vectorization": {"cpp.simdlen": 1},
    "tail_vectorization": {"cpp.enable_loop_tail_vec": False},
    "tiling": {"cpp.enable_tiling_heuristics": False},
    "inplace_buffers": {"inplace_buffers": False},
    "buffer_reuse": {"allow_buffer_reuse": False},
    "peak_memory_order": {"reorder_for_peak_memory": False},
    "reorder_for_locality": {"reorder_for_locality": False},
    "remove_noop_ops": {},  # by its name alone, see below
    "reinplace_inplaceable_ops": {},
}


def switch_off(names):
    """For the rest of the process, before anything is compiled."""
    for name in names:
        part = PASSES[name]
        if callable(part):
            part()
            continue
        for setting, value in part.items():
            holder, _, key = setting.rpartition(".")
            setattr(getattr(torch._inductor.config, holder) if holder else torch._inductor.config, key, value)
    # Inductor leaves passes of these names out. It keeps compiled code by its settings, so this tells all others apart too.
    torch._inductor.config.disabled_passes = ",".join(names)


def marked(node):
    """A context in which torch's tracers mark operations as computing the node of this id."""
    return traceback.annotate({MARK: node})


def _marks(operations):
    """Ids of nodes, each once."""
    marks = {}
    for operation in operations:
        mark = operation.meta.get("custom", {}).get(MARK, ())
        marks.update(dict.fromkeys((mark,) if isinstance(mark, str) else mark))
    return tuple(marks)


def _keeping_marks(apply):
    """Of a pattern's rewrite: what it puts in computes what it takes out."""
    def rewritten(entry, match, graph, node):
        marks, before = _marks(match.nodes), set(graph.nodes)
        result = apply(entry, match, graph, node)
        for operation in graph.nodes:
            if operation not in before:
                operation.meta["custom"] = {**operation.meta.get("custom", {}), MARK: marks}
        return result
    return rewritten


class Kernels:
    """What inductor generated while recording()."""

    def __init__(self):
        self._made = []  # name, the traced operations behind it, whether it calls a library

    def __iter__(self):
        """(name, ids of nodes)"""
        # A generated kernel that brings data into the layout of a library's call names that call's operation, too.
        called = {operation for _, operations, library in self._made if library for operation in operations}
        for name, operations, library in self._made:
            yield name, _marks(operations if library else operations - called)

    def forget(self):
        self._made = []

    @contextlib.contextmanager
    def recording(self):
        """Everything is compiled anew: of kept code nobody knows what it was made of."""
        from torch._inductor import pattern_matcher
        from torch._inductor.codegen.cpp import CppScheduling
        from torch._inductor.ir import MultiOutput
        from torch._inductor.scheduler import Scheduler
        define, call = CppScheduling.define_kernel, Scheduler.codegen_extern_call

        def define_kernel(scheduling, source, nodes, *rest, **keys):
            name = define(scheduling, source, nodes, *rest, **keys)
            parts = [part.node for node in nodes for part in node.get_nodes()]
            self._made.append((name, {operation for part in parts for operation in part.get_origins()}, False))
            return name

        def codegen_extern_call(scheduler, node):
            made = node.node
            if not isinstance(made, MultiOutput):  # it only names one of a call's results
                operations = {made.origin_node} if made.origin_node is not None else set(made.get_origins())
                self._made.append((made.python_kernel_name or type(made).__name__, operations, True))
            return call(scheduler, node)

        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            enter(torch._functorch.config.patch(enable_autograd_cache=False))
            enter(torch._inductor.config.patch(fx_graph_cache=False))
            enter(mock.patch.object(CppScheduling, "define_kernel", define_kernel))
            enter(mock.patch.object(Scheduler, "codegen_extern_call", codegen_extern_call))
            for kind in (pattern_matcher.LoweringPatternEntry, pattern_matcher.GraphPatternEntry,
                         pattern_matcher.ReplacementPatternEntry):
                enter(mock.patch.object(kind, "apply", _keeping_marks(kind.apply)))
            yield
