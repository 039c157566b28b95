#!/usr/bin/env python3
"""Faults planted in backward nodes, and in updates and running statistics, of LeNet-5 and of a residual network are named
with the stages `gradient`, `update` and `state`."""

import pathlib
import sys
import tempfile

from planted_faults_full_test import culprits_of
from support import LENET, RESIDUAL, RESIDUAL_INPUTS, Tally, compare, lenet_inputs, require

# Model, backward node, fault. Gross ones, and ones of 4 deviations of every element or 10 of one.
BACKWARD = (
    ("lenet", "conv1/gradient", "negate"),
    ("lenet", "conv1/gradient", "deviations,size=4"),
    ("lenet", "relu1/gradient", "kink"),
    ("lenet", "pool1/gradient", "element,index=1234,relative=0.01"),
    ("lenet", "conv2/gradient", "transpose"),
    ("lenet", "conv2/gradient", "deviations,size=10,index=40"),
    ("lenet", "relu2/gradient", "kink,size=0.5"),
    ("lenet", "flatten/gradient", "row,axis=1,index=3,size=0.25"),
    ("lenet", "fc1/gradient", "round-operand"),
    ("lenet", "fc1/gradient", "unsummed"),
    ("lenet", "relu3/gradient", "negate"),
    ("lenet", "fc2/gradient", "mean-for-sum"),
    ("lenet", "fc3/gradient", "deviations,size=4"),
    ("lenet", "logsoftmax/gradient", "scale,size=6"),
    ("residual", "conv1/gradient", "shift-pads"),
    ("residual", "conv2/gradient", "drop-term"),
    ("residual", "batchnorm1/gradient", "attribute,attribute=epsilon,value=0.1"),
    ("residual", "batchnorm2/gradient", "deviations,size=4"),
    ("residual", "conv1/gradient", "deviations,size=10,index=100"),
    ("residual", "averagepool/gradient", "undivided"),
    ("residual", "globalaveragepool/gradient", "undivided"),
    ("residual", "gemm/gradient", "unsummed"),
    ("residual", "gemm/gradient", "deviations,size=10,index=5"),
    ("residual", "softmax/gradient", "scale,size=6"),
)

# Model, optimiser, node, fault, stage.
UPDATES = (
    ("lenet", "sgd:lr=0.01,momentum=0.9", "conv1.weight/update", "scale,size=8", "update"),
    ("lenet", "sgd:lr=0.01,momentum=0.9", "fc1.weight/update", "attribute,attribute=momentum,value=0.8", "update"),
    ("lenet", "sgd:lr=0.01,weight_decay=0.01", "fc2.weight/update", "attribute,attribute=weight_decay,value=0", "update"),
    ("lenet", "adam:lr=0.001", "conv2.weight/update", "attribute,attribute=beta2,value=0.99", "update"),
    ("lenet", "adam:lr=0.001", "fc1.bias/update", "attribute,attribute=epsilon,value=1e-3", "update"),
    ("lenet", "adamw:lr=0.001,weight_decay=0.1", "fc3.weight/update", "attribute,attribute=decoupled,value=0", "update"),
    ("lenet", "rmsprop:lr=0.001", "fc2.bias/update", "deviations,size=4", "update"),
    ("lenet", "adagrad:lr=0.01", "fc1.weight/update", "deviations,size=10,index=77", "update"),
    ("residual", "sgd:lr=0.01,momentum=0.9,nesterov=1", "gemm.weight/update", "negate", "update"),
    ("residual", "sgd:lr=0.01", "batchnorm1", "attribute,attribute=momentum,value=0.5", "state"),
    ("residual", "sgd:lr=0.01", "batchnorm2", "attribute,attribute=momentum,value=0.99", "state"),
    ("residual", "adam:lr=0.001", "batchnorm1.scale/update", "row,axis=0,index=2,size=0.001", "update"),
)


def main() -> int:
    require("torch")
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        models = {
            "lenet": [LENET, *lenet_inputs(pathlib.Path(folder), 20)],
            "residual": [RESIDUAL, *RESIDUAL_INPUTS],
        }
        tallies = []

        def measure(name, model, node, stage, fault, *mode):
            if wanted and not any(word in name for word in wanted):
                return
            spec = f"faulty:base=torch,node={node},fault={fault}"
            with compare(*models[model], "--backends", spec, *mode) as run:
                faults = []
                culprits = culprits_of(run, faults)
                blamed = [(culprit["nodes"], culprit["stage"]) for culprit in culprits]
                if culprits and blamed != [([node], stage)]:
                    faults.append(f"blamed {blamed}")
                tallies[-1].case(f"{name} ({run.result['wall_seconds']:.1f} s)" if run.result else name, faults)

        tallies.append(Tally("planted backward faults: node and stage named, with proof"))
        for model, node, fault in BACKWARD:
            measure(f"{model} {node} {fault}", model, node, "gradient", fault, "--mode", "gradient")

        tallies.append(Tally("planted faults of updates and running statistics: node and stage named, with proof"))
        for model, optimiser, node, fault, stage in UPDATES:
            measure(
                f"{model} {node} {optimiser} {fault}", model, node, stage, fault, "--mode", "step", "--optimizer", optimiser
            )
        return max([tally.close() for tally in tallies])


if __name__ == "__main__":
    sys.exit(main())
