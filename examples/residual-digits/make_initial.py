#!/usr/bin/env python3
"""Writes a small residual network with batch normalisation for 8x8 digits: how residual_initial.onnx was made.

Usage: make_initial.py [--out residual_initial.onnx] [--seed 0]      (needs numpy, onnx)

conv 1-16, two residual blocks (16, then 32 channels with a 1x1 projection at stride 2), global average pooling, a linear
classifier. Convolutions start as in He, Zhang, Ren and Sun (2015): normal with deviation sqrt(2 / inputs).
"""

import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, seed: int):
        self.generator, self.nodes, self.weights = np.random.default_rng(seed), [], []

    def add(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def weight(self, name, values):
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def conv(self, x, name, inputs, outputs, size, stride=1):
        deviation = np.sqrt(2 / (inputs * size * size))
        weight = self.weight(f"{name}.weight", self.generator.normal(0, deviation, (outputs, inputs, size, size)))
        pads = [size // 2] * 4
        return self.add("Conv", [x, weight], name, kernel_shape=[size, size], pads=pads, strides=[stride, stride])

    def norm(self, x, name, channels):
        parts = {"scale": 1, "bias": 0, "mean": 0, "var": 1}
        names = [self.weight(f"{name}.{part}", np.full(channels, value)) for part, value in parts.items()]
        return self.add("BatchNormalization", [x, *names], name, epsilon=1e-5, momentum=0.9)

    def block(self, x, name, inputs, outputs, stride):
        y = self.norm(self.conv(x, f"{name}.conv1", inputs, outputs, 3, stride), f"{name}.bn1", outputs)
        y = self.add("Relu", [y], f"{name}.relu1")
        y = self.norm(self.conv(y, f"{name}.conv2", outputs, outputs, 3), f"{name}.bn2", outputs)
        if stride != 1 or inputs != outputs:
            x = self.norm(self.conv(x, f"{name}.project", inputs, outputs, 1, stride), f"{name}.bn3", outputs)
        return self.add("Relu", [self.add("Add", [y, x], f"{name}.add")], f"{name}.relu2")


def network(seed: int) -> onnx.ModelProto:
    """[batch, 1, 8, 8] to class scores [batch, 10]; opset 17, IR version 8."""
    b = Builder(seed)
    x = b.add("Relu", [b.norm(b.conv("image", "stem.conv", 1, 16, 3), "stem.bn", 16)], "stem.relu")
    x = b.block(x, "block1", 16, 16, 1)
    x = b.block(x, "block2", 16, 32, 2)
    x = b.add("Flatten", [b.add("GlobalAveragePool", [x], "pool")], "flatten", axis=1)
    bound = 1 / np.sqrt(32)
    weight = b.weight("fc.weight", b.generator.uniform(-bound, bound, (10, 32)))
    bias = b.weight("fc.bias", b.generator.uniform(-bound, bound, 10))
    b.nodes.append(helper.make_node("Gemm", [x, weight, bias], ["scores"], "fc", transB=1))
    graph = helper.make_graph(
        b.nodes,
        "residual",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
        b.weights,
    )
    model = helper.make_model(graph, producer_name="opdiff", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "residual_initial.onnx")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.write_bytes(network(options.seed).SerializeToString(deterministic=True))
    print(f"wrote {options.out}, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
