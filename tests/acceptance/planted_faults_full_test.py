#!/usr/bin/env python3
"""Faults planted in one node of LeNet-5 and of a residual net are named first, with proof; so are two at once, and
faults that need two nodes in one segment."""

import pathlib
import sys
import tempfile

from support import DEFECT, LENET, RESIDUAL, RESIDUAL_INPUTS, Tally, compare, lenet_inputs, require

# Model, node, operator, base, fault. Ten operators; gross faults, and ones of 4 deviations of every element or 10 of one.
SINGLE = (
    ("lenet", "conv1", "Conv", "onnxruntime", "drop-term"),
    ("lenet", "conv2", "Conv", "torch", "round-operand"),
    ("lenet", "relu1", "Relu", "onnxruntime", "tail,count=3,size=0.5"),
    ("lenet", "pool1", "MaxPool", "onnxruntime", "element,index=1234,size=0.001"),
    ("lenet", "pool2", "MaxPool", "torch", "row,axis=1,index=3,relative=0.125"),
    ("lenet", "flatten", "Flatten", "torch", "row,axis=1,index=200,count=8,size=0.25"),
    ("lenet", "fc1", "Gemm", "torch", "drop-channel,index=17"),
    ("lenet", "fc2", "Gemm", "onnxruntime", "deviations,size=4"),
    ("lenet", "fc3", "Gemm", "torch", "deviations,size=10,index=123"),
    ("lenet", "logsoftmax", "LogSoftmax", "torch", "scale,size=6"),
    ("lenet", "conv1", "Conv", "torch", "deviations,size=4"),
    ("residual", "conv2", "Conv", "onnxruntime", "deviations,size=10,index=777"),
    ("residual", "batchnorm1", "BatchNormalization", "torch", "deviations,size=4"),
    ("residual", "batchnorm2", "BatchNormalization", "onnxruntime", "attribute,attribute=epsilon,value=0.1"),
    ("residual", "add", "Add", "torch", "deviations,size=10,index=100"),
    ("residual", "relu2", "Relu", "torch", "negate"),
    ("residual", "averagepool", "AveragePool", "onnxruntime", "deviations,size=4"),
    ("residual", "globalaveragepool", "GlobalAveragePool", "torch", "deviations,size=4"),
    ("residual", "softmax", "Softmax", "onnxruntime", "scale,size=6"),
    ("residual", "gemm", "Gemm", "onnxruntime", "deviations,size=10,index=5"),
)

# Model, base, two faults (node, fault).
DOUBLE = (
    ("residual", "onnxruntime", ("conv1", "scale,size=10"), ("gemm", "drop-term")),
    ("lenet", "torch", ("conv2", "drop-term"), ("logsoftmax", "scale,size=6")),
    ("lenet", "onnxruntime", ("fc1", "deviations,size=4"), ("pool1", "scale,size=8")),
)

# Model, base, first and second node of the segment, fault, nodes of the segment.
PAIRS = (
    ("residual", "onnxruntime", "conv1", "batchnorm1", "scale,size=10", ["conv1", "batchnorm1"]),
    ("residual", "torch", "add", "relu2", "row,axis=1,index=2,size=0.5", ["add", "relu2"]),
    ("residual", "onnxruntime", "averagepool", "globalaveragepool", "scale,size=9", ["averagepool", "globalaveragepool"]),
    ("lenet", "onnxruntime", "conv2", "pool2", "tail,size=0.5", ["conv2", "relu2", "pool2"]),
    ("lenet", "torch", "fc2", "relu4", "scale,size=8", ["fc2", "relu4"]),
)


def spec_of(base: str, where: str, fault: str) -> str:
    return f"faulty:base={base},{where},fault={fault}"


def missing_proofs(culprit: dict) -> list[str]:
    return [
        f"{proof} of {culprit['nodes']} does not hold: {culprit[proof]}"
        for proof in ("necessary", "sufficient", "placebo")
        if not culprit[proof]["holds"]
    ] + ([] if culprit["repeat"].startswith("opdiff compare ") else ["no command that repeats it"])


def culprits_of(run, faults: list[str]) -> list[dict]:
    faults += run.leftovers()
    if run.status != DEFECT or run.result is None or run.result["status"] != "defect" or not run.result["culprits"]:
        faults.append(run.describe())
        return []
    culprits = run.result["culprits"]
    for culprit in culprits:
        faults += missing_proofs(culprit)
    return culprits


def main() -> int:
    require("onnxruntime", "torch")
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        models = {
            "lenet": [LENET, *lenet_inputs(pathlib.Path(folder))],
            "residual": [RESIDUAL, *RESIDUAL_INPUTS],
        }
        tallies = []

        def measure(tally, name, model, spec, check):
            if wanted and not any(word in name for word in wanted):
                return
            with compare(*models[model], "--backends", spec) as run:
                faults = []
                culprits = culprits_of(run, faults)
                if culprits:
                    faults += check(culprits)
                tally.case(f"{name} ({run.result['wall_seconds']:.1f} s)" if run.result else name, faults)

        tallies.append(Tally("planted faults: named first, with proof"))
        for model, node, op, base, fault in SINGLE:

            def named_first(culprits, node=node, op=op):
                first = culprits[0]
                if first["nodes"] == [node] and first["op"] == op and len(culprits) == 1:
                    return []
                return [f"blamed {[(c['nodes'], c['stage']) for c in culprits]}"]

            measure(
                tallies[-1], f"{model} {node} ({op}) {base} {fault}", model, spec_of(base, f"node={node}", fault), named_first
            )

        tallies.append(Tally("two faults at once: both named"))
        for model, base, (node, fault), (other, other_fault) in DOUBLE:
            inner = spec_of(base, f"node={node}", fault)

            def both_named(culprits, both=(node, other)):
                blamed = [culprit["nodes"] for culprit in culprits]
                return [] if sorted(blamed) == sorted([name] for name in both) else [f"blamed {blamed}"]

            measure(
                tallies[-1],
                f"{model} {base} {node} {fault} and {other} {other_fault}",
                model,
                spec_of(f"({inner})", f"node={other}", other_fault),
                both_named,
            )

        tallies.append(Tally("faults of a segment: segment and stage named"))
        for model, base, first, second, fault, segment in PAIRS:

            def segment_named(culprits, segment=segment):
                blamed = [(culprit["nodes"], culprit["stage"]) for culprit in culprits]
                return [] if blamed == [(segment, "fusion-or-rewrite")] else [f"blamed {blamed}"]

            measure(
                tallies[-1],
                f"{model} {base} {first}+{second} {fault}",
                model,
                spec_of(base, f"pair={first}+{second}", fault),
                segment_named,
            )
        return max([tally.close() for tally in tallies])


if __name__ == "__main__":
    sys.exit(main())
